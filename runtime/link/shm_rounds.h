// ShmRounds: rounds in which every rank of a node posts one message for all others, through memory that they share. It
// is how small operations go without anybody deciding their order: what all have posted in one round is theirs to do.
//
// A round is full once every rank has posted, or void once one has given up waiting; which of the two is decided by one
// atomic word, so that all ranks see the same. Who comes to a void round goes on to the next without posting. So nobody
// is ever held up here by a rank that is late, does something else, or is dead, for longer than it wants to wait.
// A rank takes part in one round at a time. Box n of a rank is used for round n again kRounds later, when all ranks
// have passed it.
//
// Every rank looks at the memory through an object of its own. Nothing here waits in the kernel but by sched_yield(2).
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/clock.h"

namespace hvd {

class ShmRounds {
 public:
  static constexpr std::size_t kRounds = 4;
  static constexpr std::size_t kBoxBytes = 132U << 10U;

  // `memory`: bytes_for(ranks) of shared memory, zeroed before its first use, at a multiple of kCacheLineBytes.
  ShmRounds(std::uint8_t* memory, int ranks, int rank);
  static std::size_t bytes_for(int ranks);

  // Where this rank writes its message for the next round; null while another rank may still read what lies there.
  // May be called again before post().
  std::uint8_t* open();
  // Posts what was written. True: all ranks have; their boxes can be read until pass(). False: the round is void, or
  // has become so because it was not full after so many looks, then so long a time of giving way to others (on a busy
  // machine one such yield may take milliseconds, which is why they are not counted).
  bool post(int spins, Duration yields_for);
  [[nodiscard]] const std::uint8_t* box(int rank) const;
  // In a full round: what open() gives for the round behind it, unless that is void by then. Nobody reads it any more.
  [[nodiscard]] std::uint8_t* next_box() const { return box_of(rank_, round_ + 1); }
  // After a full round.
  void pass();

 private:
  struct Line;

  [[nodiscard]] std::uint8_t* box_of(int rank, std::uint64_t round) const;
  [[nodiscard]] Line& word() const { return *word_of(round_); }
  [[nodiscard]] Line* word_of(std::uint64_t round) const;
  [[nodiscard]] Line* passed_of(int rank) const;
  [[nodiscard]] bool have_all_passed(std::uint64_t round);
  bool enter();
  // What has become of this round: more than 0 it is full, less it is void.
  [[nodiscard]] int state() const;
  bool give_up();

  // constant after construction
  std::uint8_t* memory_;
  int ranks_;
  int rank_;
  // one thread at a time
  std::uint64_t round_ = 0;
  std::uint64_t known_passed_ = 0;  // all ranks have passed the rounds below
};

}  // namespace hvd
