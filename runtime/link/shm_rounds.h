// ShmRounds lets all ranks of a node exchange small messages in rounds, through memory that they share. In each round
// every rank posts one message for all others. Small operations run this way without a coordinator: the messages of one
// round determine what all ranks do.
//
// A round is full once every rank has posted, and void once one has given up waiting. One atomic word decides which, so
// all ranks see the same outcome. A rank that comes to a void round goes on to the next without posting. So a rank that
// is late, busy or dead holds up another only for as long as the other chooses to wait. A rank takes part in one round
// at a time. Each rank has kRounds boxes; a box is used again kRounds rounds later, when all ranks have passed its
// round.
//
// Every rank uses an object of its own. post() makes no system call but sched_yield(2), and never sleeps. Thread: one
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "runtime/base/clock.h"

namespace hvd {

class ShmRounds {
 public:
  static constexpr std::size_t kRounds = 4;
  static constexpr std::size_t kBoxBytes = 132U << 10U;

  // `memory`: bytes_for(ranks) of shared memory, zeroed before its first use, at a multiple of kCacheLineBytes.
  ShmRounds(std::uint8_t* memory, int ranks, int rank);
  static std::size_t bytes_for(int ranks);

  // The box for this rank's message of the next round; null while another rank may still read the box's old content.
  // May be called again before post().
  std::uint8_t* open();
  // Posts the message. True: all ranks have posted, and their boxes can be read until pass(). False: the round is void.
  // It becomes so when it is not full after `spins` looks and then `yields_for` of yielding. The yields are limited by
  // time, not by number, because on a busy machine one yield may take milliseconds.
  bool post(int spins, Duration yields_for);
  // The same for a round that all ranks have promised to post in: waits until it is full, unless `gives_up` says that
  // the job is over. It yields at first, and then sleeps between looks, for longer the longer it waits. `gives_up` is
  // called before the first sleep, and then about ten times a second.
  bool post_promised(int spins, const std::function<bool()>& gives_up);
  [[nodiscard]] const std::uint8_t* box(int rank) const;
  // In a full round: the box that open() will give for the next round, unless that round is void by then. No rank reads
  // it any more.
  [[nodiscard]] std::uint8_t* next_box() const { return box_of(rank_, round_ + 1); }
  // Leaves a full round.
  void pass();

 private:
  struct Line;

  [[nodiscard]] std::uint8_t* box_of(int rank, std::uint64_t round) const;
  [[nodiscard]] Line& word() const { return *word_of(round_); }
  [[nodiscard]] Line* word_of(std::uint64_t round) const;
  [[nodiscard]] Line* passed_of(int rank) const;
  [[nodiscard]] bool have_all_passed(std::uint64_t round);
  bool enter();
  int spin(int spins);
  bool leave(int outcome);
  // The state of this round: more than 0 means full, less than 0 void.
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
