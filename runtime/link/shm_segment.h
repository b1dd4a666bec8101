// ShmSegment is the memory that all ranks of a node share. It has one slot of staging memory per rank, a barrier, a
// lane per rank (its bell and its two rings, to and from the leader), and the rounds of shm_rounds.h.
//
// It lives in a memfd that the leader makes and hands over through a unix socket. So it has no name, and the kernel
// frees it with its last user, however the ranks die. Layout: one page of control words, then local_size lanes, then
// the rounds, then local_size slots of slot_bytes, then the arenas. An arena is a large range of addresses for each
// rank, of which only the reserved parts cost memory.
//
// The barrier is a counter and a generation. A rank that has to wait first spins for a short time, but only where every
// rank of the node can have a core. Then it yields a few times, then it sleeps in the kernel (futex(2), not private:
// the word is shared between processes). A sleep lasts at most 100 ms; then it asks the Interrupt.
//
// Thread: engine only. In tests the ranks are threads that each map the same memfd. A thread sanitizer sees different
// addresses then, and cannot check data that is passed through a slot. For that reason too, the words are atomics.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

// A multiple of the page size of every Linux for this processor. On x86 that is 4 KiB; kernels for arm64 have pages of
// 4, 16 or 64 KiB (those of RHEL 8, and those made for NVIDIA's Grace, have 64), and mmap refuses an offset between
// pages.
#if defined(__x86_64__) || defined(__i386__)
inline constexpr std::size_t kPageBytes = 4096;
#else
inline constexpr std::size_t kPageBytes = 65536;
#endif

class ShmSegment {
 public:
  // Makes the memory; for the leader. Pages cost memory only once they are touched.
  static Result<std::unique_ptr<ShmSegment>> create(int local_size, std::size_t slot_bytes, int local_rank = 0);
  // Maps the memory that the leader has sent, and refuses anything but such a segment of local_size ranks.
  static Result<std::unique_ptr<ShmSegment>> attach(Fd memory, int local_size, int local_rank);
  // Marks that this rank leaves. A barrier that waits for it then fails instead of waiting on.
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  [[nodiscard]] int local_size() const { return local_size_; }
  [[nodiscard]] int local_rank() const { return local_rank_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  // The staging memory of a rank, page-aligned.
  [[nodiscard]] std::uint8_t* slot(int local_rank) const {
    return slots_ + static_cast<std::size_t>(local_rank) * slot_bytes_;
  }
  [[nodiscard]] int memory_fd() const { return memory_.get(); }

  // A rank's bell, and its rings to and from the leader. The leader's own two rings are not used.
  [[nodiscard]] ShmBell bell(int local_rank) const { return ShmBell(lane(local_rank)); }
  [[nodiscard]] ShmRing ring_to_leader(int local_rank) const;
  [[nodiscard]] ShmRing ring_from_leader(int local_rank) const;

  // The arena of a rank: memory that it hands out to its user, and that the other ranks see at the same offset. All of
  // it costs address space only, and that only after the first reserve().
  [[nodiscard]] std::size_t arena_bytes() const { return arena_bytes_; }  // per rank; 0: there is none
  [[nodiscard]] std::uint8_t* arena(int local_rank) const;
  // Allocates that part of this rank's arena, zeroed; kResource when memory is short. Takes multiples of the page size.
  Result<void> reserve(std::size_t offset, std::size_t size_bytes);
  // Gives the memory back to the system.
  void release(std::size_t offset, std::size_t size_bytes);

  // The memory for a ShmRounds of all ranks.
  [[nodiscard]] std::uint8_t* rounds() const { return lane(local_size_); }

  // The number of looks for another rank's data before yielding; 0 where ranks outnumber cores. Valid only once all
  // ranks have attached, because each of them adds its cores then.
  [[nodiscard]] int spins() const;
  // The number of cores that the ranks of the node may use together. Valid only once all have attached. Thread: any.
  [[nodiscard]] int core_count() const;

  // Returns once every rank of the node has called it. What each wrote before is then visible to all. After an error
  // the job is over, and the segment must not be used any more.
  Result<void> barrier(Interrupt& interrupt);

  // Sends `fd` with one byte over a connected unix socket, or receives it at the other end. receive_fd does not wait:
  // it returns an Fd that is not open when nothing has come yet.
  static Result<void> send_fd(int socket, int fd);
  static Result<Fd> receive_fd(int socket);

 private:
  struct Control;

  ShmSegment(Fd memory, void* base, std::size_t mapped_bytes, int local_size, std::size_t slot_bytes, int local_rank);
  [[nodiscard]] std::size_t arena_at(int local_rank) const;
  void unmap_arena();
  static void keep_alone(std::uint8_t* data, std::size_t size_bytes);
  void punch(std::size_t offset, std::size_t size_bytes);
  static Result<void*> map(int fd, std::size_t bytes);
  [[nodiscard]] std::uint8_t* lane(int local_rank) const;
  Result<void> wait_for_generation(std::uint32_t old_generation, Interrupt& interrupt);

  // constant after construction
  Fd memory_;
  std::uint8_t* base_;
  std::size_t mapped_bytes_;
  int local_size_;
  std::size_t slot_bytes_;
  std::uint8_t* slots_;
  int local_rank_;
  pid_t owner_;  // a forked child shares the memory but is not the rank
  Control* control_;
  std::size_t arena_bytes_;
  // engine only
  std::optional<int> spins_;                     // before yielding; asked for at the first wait, see spins()
  std::uint8_t* arena_ = nullptr;                // the arenas of all ranks, once they are mapped
  std::map<std::size_t, std::size_t> reserved_;  // reserved parts of this rank's arena: offset -> bytes
};

}  // namespace hvd
