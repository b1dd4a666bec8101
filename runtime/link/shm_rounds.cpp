#include "runtime/link/shm_rounds.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/base/machine.h"
#include "runtime/link/shm_ring.h"

namespace hvd {
namespace {

// The state of a round in one word: its number, whether it is void, and how many ranks have posted. A word with a lower
// number is left from an earlier round that used the same place.
constexpr std::uint64_t kVoid = 1U << 15U;
constexpr std::uint64_t kCount = kVoid - 1;
constexpr unsigned kNumberShift = 16;

// How long a promised post is waited for without sleeping. After that a sleep is a part of what was waited so far,
// which is then also the most that sleeping adds to a wait.
constexpr Duration kYieldsFor = std::chrono::milliseconds(2);
constexpr int kNapsPerWait = 16;
constexpr Duration kLongestNap = std::chrono::milliseconds(5);
constexpr Duration kAskEvery = std::chrono::milliseconds(100);

std::uint64_t number_of(std::uint64_t word) {
  return word >> kNumberShift;
}

}  // namespace

struct ShmRounds::Line {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> value;
};

// The layout: first the words of the rounds, then how many rounds each rank has passed, then the boxes of rank 0, of
// rank 1, ...
ShmRounds::ShmRounds(std::uint8_t* memory, int ranks, int rank) : memory_(memory), ranks_(ranks), rank_(rank) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Line) == kCacheLineBytes);
}

std::size_t ShmRounds::bytes_for(int ranks) {
  return kRounds * sizeof(Line) + static_cast<std::size_t>(ranks) * (sizeof(Line) + kRounds * kBoxBytes);
}

ShmRounds::Line* ShmRounds::word_of(std::uint64_t round) const {
  return reinterpret_cast<Line*>(memory_) + round % kRounds;
}

ShmRounds::Line* ShmRounds::passed_of(int rank) const {
  return reinterpret_cast<Line*>(memory_) + kRounds + rank;
}

std::uint8_t* ShmRounds::box_of(int rank, std::uint64_t round) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  const std::size_t before = static_cast<std::size_t>(rank) * kRounds + round % kRounds;
  return memory_ + (kRounds + ranks) * sizeof(Line) + before * kBoxBytes;
}

const std::uint8_t* ShmRounds::box(int rank) const {
  return box_of(rank, round_);
}

bool ShmRounds::have_all_passed(std::uint64_t round) {
  if (round < known_passed_) {
    return true;
  }
  std::uint64_t least = round_;
  for (int rank = 0; rank < ranks_; ++rank) {
    least = std::min(least, rank == rank_ ? round_ : passed_of(rank)->value.load(std::memory_order_acquire));
  }
  known_passed_ = least;
  return round < known_passed_;
}

std::uint8_t* ShmRounds::open() {
  for (;;) {
    if (round_ >= kRounds && !have_all_passed(round_ - kRounds)) {
      return nullptr;
    }
    if (state() >= 0) {
      return box_of(rank_, round_);
    }
    pass();
  }
}

int ShmRounds::state() const {
  const std::uint64_t word = this->word().value.load(std::memory_order_acquire);
  if (number_of(word) != round_) {
    return 0;  // no rank has posted in it yet
  }
  if ((word & kVoid) != 0) {
    return -1;
  }
  return (word & kCount) == static_cast<std::uint64_t>(ranks_) ? 1 : 0;
}

// Counts this rank as posted; false when the round is void.
bool ShmRounds::enter() {
  std::atomic<std::uint64_t>& word = this->word().value;
  std::uint64_t before = word.load(std::memory_order_acquire);
  for (;;) {
    const bool is_first = number_of(before) != round_;
    if (!is_first && (before & kVoid) != 0) {
      return false;
    }
    const std::uint64_t after = is_first ? (round_ << kNumberShift) + 1 : before + 1;
    if (word.compare_exchange_weak(before, after, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return true;
    }
  }
}

// Makes the round void; false when it is too late because all ranks have posted.
bool ShmRounds::give_up() {
  std::atomic<std::uint64_t>& word = this->word().value;
  std::uint64_t before = word.load(std::memory_order_acquire);
  for (;;) {
    if ((before & kVoid) != 0) {
      return true;
    }
    if ((before & kCount) == static_cast<std::uint64_t>(ranks_)) {
      return false;
    }
    if (word.compare_exchange_weak(before, before | kVoid, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return true;
    }
  }
}

// Counts this rank, and looks for the others without a system call. Returns the state.
int ShmRounds::spin(int spins) {
  int now = enter() ? state() : -1;
  for (int waited = 0; now == 0 && waited < spins; ++waited) {
    pause_briefly();
    now = state();
  }
  return now;
}

// The end of a wait: a round that is not full by now is given up.
bool ShmRounds::leave(int outcome) {
  if (outcome > 0 || (outcome == 0 && !give_up())) {
    return true;
  }
  pass();
  return false;
}

bool ShmRounds::post(int spins, Duration yields_for) {
  int now = spin(spins);
  if (now == 0) {
    const Deadline patience = Deadline::after(yields_for);
    do {
      ::sched_yield();
      now = state();
    } while (now == 0 && !patience.has_passed());
  }
  return leave(now);
}

bool ShmRounds::post_promised(int spins, const std::function<bool()>& gives_up) {
  int now = spin(spins);
  const SteadyClock clock;
  const TimePoint began = clock.now();
  Duration waited{};
  while (now == 0 && waited < kYieldsFor) {
    ::sched_yield();
    now = state();
    waited = clock.now() - began;
  }
  Duration next_ask = waited;
  while (now == 0) {
    if (waited >= next_ask) {
      if (gives_up()) {
        break;
      }
      next_ask = waited + kAskEvery;
    }
    std::this_thread::sleep_for(std::min(kLongestNap, waited / kNapsPerWait));
    now = state();
    waited = clock.now() - began;
  }
  return leave(now);
}

void ShmRounds::pass() {
  ++round_;
  passed_of(rank_)->value.store(round_, std::memory_order_release);
}

}  // namespace hvd
