// ShmRing: bytes in order from one process to another through memory that both have mapped, and ShmBell: whether the
// reader sleeps. Nothing here waits or calls the kernel.
//
// Either end looks at the ring through an object of its own. The positions count all bytes ever written and read; each
// is written by one side, on a cache line of its own, and a side reads the other's only when what it knows is used up.
// Thread: engine only, on each side.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd {

inline constexpr std::size_t kCacheLineBytes = 64;

class ShmRing {
 public:
  // Of shared memory, zeroed before its first use, at a multiple of kCacheLineBytes.
  static constexpr std::size_t kBytes = 32U << 10U;

  explicit ShmRing(std::uint8_t* memory);

  // Writer: takes as much of `bytes` as there is room for; how much that was.
  std::size_t write(std::string_view bytes);
  // Writer, when there was not room for all: the reader will be asked to say when it has read (see was_asked()).
  void ask_for_room();
  // Writer, once all is written: nothing more will come.
  void close();

  // Reader: what can be read without a seam, empty when nothing is there. kProtocol: the words make no sense.
  Result<Bytes> readable();
  void consume(std::size_t size);
  // Reader, after consume(): whether the writer waits for room; says it once.
  bool was_asked();
  // Reader. Sequentially consistent.
  [[nodiscard]] bool is_empty() const;
  // Reader: all has been read, and nothing more will come.
  [[nodiscard]] bool has_ended() const;

 private:
  struct Words;
  static constexpr std::size_t kHeaderBytes = 4 * kCacheLineBytes;
  static constexpr std::size_t kCapacity = kBytes - kHeaderBytes;

  Words* words_;
  std::uint8_t* data_;
  std::uint64_t written_ = 0;  // writer: its own position; reader: as far as it knows
  std::uint64_t read_ = 0;     // the other way round
};

// One per process. Whoever has put something where the owner looks takes the bell, and if it was set wakes the owner by
// other means (a byte through a socket); so an owner that is awake costs nobody a system call.
class ShmBell {
 public:
  explicit ShmBell(std::uint8_t* memory) : is_asleep_(reinterpret_cast<std::atomic<std::uint32_t>*>(memory)) {}

  // Owner: about to sleep. It must look once more where others put things, after this.
  void set() { is_asleep_->store(1); }
  void clear() { is_asleep_->store(0, std::memory_order_relaxed); }
  // Others, after their news. True: the caller has to wake the owner.
  bool take() {
    // Against set(): either the owner's last look sees the news, or this sees the owner asleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return is_asleep_->load(std::memory_order_relaxed) != 0 && is_asleep_->exchange(0) != 0;
  }

 private:
  std::atomic<std::uint32_t>* is_asleep_;
};

}  // namespace hvd
