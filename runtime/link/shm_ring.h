// ShmRing passes a stream of bytes from one process to another through memory that both have mapped. ShmBell, beside
// it, says whether the reader sleeps. Neither waits or calls the kernel.
//
// Each end uses a ShmRing object of its own. The two positions count all bytes ever written and all ever read. Each is
// written by one side only, on its own cache line. A side reads the other's position only when the value that it read
// last is used up. Thread: engine only, on each side.
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
  // The size of its shared memory, which is zeroed before its first use, at a multiple of kCacheLineBytes.
  static constexpr std::size_t kBytes = 32U << 10U;

  explicit ShmRing(std::uint8_t* memory);

  // Writer: copies as much of `bytes` as there is room for, and returns how much that was.
  std::size_t write(std::string_view bytes);
  // Writer, when there was not room for all: asks the reader to report when it has read (see was_asked()).
  void ask_for_room();
  // Writer, once all is written: marks the end of the stream.
  void close();

  // Reader: the bytes that lie in one piece, empty when there are none. kProtocol: the positions make no sense.
  Result<Bytes> readable();
  void consume(std::size_t size);
  // Reader, after consume(): whether the writer waits for room. Says so once for each request.
  bool was_asked();
  // Reader: whether nothing is there to read. Sequentially consistent, for the last look before a sleep.
  [[nodiscard]] bool is_empty() const;
  // Reader: all has been read, and nothing more will come.
  [[nodiscard]] bool has_ended() const;

 private:
  struct Words;
  static constexpr std::size_t kHeaderBytes = 4 * kCacheLineBytes;
  static constexpr std::size_t kCapacity = kBytes - kHeaderBytes;

  Words* words_;
  std::uint8_t* data_;
  std::uint64_t written_ = 0;  // writer: its own position; reader: the writer's as last seen
  std::uint64_t read_ = 0;     // reader: its own position; writer: the reader's as last seen
};

// ShmBell is a flag in shared memory that says whether a process sleeps; each process has one. A process that has put
// something where the owner looks takes the bell. If it was set, it wakes the owner by other means (a byte through a
// socket). So nobody spends a system call on an owner that is awake.
class ShmBell {
 public:
  explicit ShmBell(std::uint8_t* memory) : is_asleep_(reinterpret_cast<std::atomic<std::uint32_t>*>(memory)) {}

  // Owner, about to sleep: after this it must look once more where others put things.
  // The fence keeps that look behind the store, whatever kind of load it is.
  void set() {
    is_asleep_->store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void clear() { is_asleep_->store(0, std::memory_order_relaxed); }
  // Others, after they have put something there. True: the caller has to wake the owner.
  bool take() {
    // Paired with set(): either the owner's last look sees what was put there, or this sees the owner asleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return is_asleep_->load(std::memory_order_relaxed) != 0 && is_asleep_->exchange(0) != 0;
  }

 private:
  std::atomic<std::uint32_t>* is_asleep_;
};

}  // namespace hvd
