// ShmSegment: the memory that all ranks of a node share: one slot of staging memory per rank, a barrier, a lane per
// rank for messages to and from the leader, and rounds (shm_rounds.h).
//
// It lives in a memfd that the leader makes and hands over through a unix socket, so that it has no name, and is gone
// with its last user however the ranks die. Layout: one page of control words, then local_size lanes, then the
// rounds, then local_size slots of slot_bytes, then the arena: for each rank a large range of addresses, of which only
// what is given out costs memory.
//
// The barrier is a counter and a generation. A rank that has to wait spins a short while, only where every rank of the
// node can have a core, then gives way to others a few times, then sleeps in the kernel (futex(2), not private: the
// word is shared between processes). Within one sleep of 100 ms it asks the Interrupt.
//
// Thread: engine only. In tests the ranks are threads that each map the same memfd: a thread sanitizer sees different
// addresses then, so that it says nothing about data passed through a slot; the words are atomics for that reason too.
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

class ShmSegment {
 public:
  // The leader: makes the memory. It costs address space until it is touched.
  static Result<std::unique_ptr<ShmSegment>> create(int local_size, std::size_t slot_bytes, int local_rank = 0);
  // Another rank: maps what the leader has sent, and refuses what is not such a segment of local_size ranks.
  static Result<std::unique_ptr<ShmSegment>> attach(Fd memory, int local_size, int local_rank);
  // Tells the others that this rank leaves: a barrier that waits for it fails instead of waiting on.
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  [[nodiscard]] int local_size() const { return local_size_; }
  [[nodiscard]] int local_rank() const { return local_rank_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  // Page-aligned.
  [[nodiscard]] std::uint8_t* slot(int local_rank) const {
    return slots_ + static_cast<std::size_t>(local_rank) * slot_bytes_;
  }
  [[nodiscard]] int memory_fd() const { return memory_.get(); }

  // A rank's bell, and its rings to and from the leader (the leader's own two are not used).
  [[nodiscard]] ShmBell bell(int local_rank) const { return ShmBell(lane(local_rank)); }
  [[nodiscard]] ShmRing ring_to_leader(int local_rank) const;
  [[nodiscard]] ShmRing ring_from_leader(int local_rank) const;

  // Memory that a rank hands out to its user, and that the other ranks see: at the same offset for each rank. The whole
  // of it costs address space only, and that only after the first reserve().
  [[nodiscard]] std::size_t arena_bytes() const { return arena_bytes_; }  // of each rank; 0: there is none
  [[nodiscard]] std::uint8_t* arena(int local_rank) const;
  // Makes sure that this rank has that memory, zeroed; kResource when there is none. Multiples of the page size.
  Result<void> reserve(std::size_t offset, std::size_t size_bytes);
  // Gives it back.
  void release(std::size_t offset, std::size_t size_bytes);

  // For a ShmRounds of all ranks.
  [[nodiscard]] std::uint8_t* rounds() const { return lane(local_size_); }

  // How often to look for what another rank writes before giving way; 0 where ranks outnumber cores. Only once all
  // ranks have attached: then they have told their cores.
  [[nodiscard]] int spins() const;
  // That the ranks of the node may use together. Only once all have attached, as above. Thread: any.
  [[nodiscard]] int core_count() const;

  // Returns once every rank of the node has called it; what each wrote before is then visible to all. After an error
  // (the job is over) the segment must not be used any more.
  Result<void> barrier(Interrupt& interrupt);

  // Send `fd` over a connected unix socket, with one byte; and the other end of that. receive_fd does not wait: an Fd
  // that is not open means that nothing has come yet.
  static Result<void> send_fd(int socket, int fd);
  static Result<Fd> receive_fd(int socket);

 private:
  struct Control;

  ShmSegment(Fd memory, void* base, std::size_t mapped_bytes, int local_size, std::size_t slot_bytes, int local_rank);
  [[nodiscard]] std::size_t arena_at(int local_rank) const;
  void unmap_arena();
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
  std::optional<int> spins_;                     // before giving way; 0 when ranks outnumber cores
  std::uint8_t* arena_ = nullptr;                // of all ranks, once it is mapped
  std::map<std::size_t, std::size_t> reserved_;  // parts of this rank's that are given out: offset -> bytes
};

}  // namespace hvd
