// FailureOrder: which rank of a job has failed first, from what was seen and told of each. Processes end in another
// order than they fail: one that has raised may still run its exit functions while the others, which fail because of
// it, have ended.
//
// The order is that of arrival at the launcher. The clocks of hosts differ by more than the failures of ranks lie
// apart, and a failure that came of another one is mostly known as such by its own words. Pure: times come with the
// events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/rendezvous/failure_news.h"

namespace hvd::launch {

class FailureOrder {
 public:
  // `patience`: how long after a sign of failure a rank may take to end. An older sign is of an exception that was
  // caught and only printed.
  FailureOrder(int size, Duration patience);

  // It is a new process, of which nothing is known yet.
  void note_start(int rank);
  // Its runtime is about to meet the others: whatever ended its last job is past.
  void note_joined(int rank);
  // A traceback or an abort has begun on its standard error: alone it says nothing, since the program may go on.
  void note_sign(int rank, TimePoint at);
  // What it has printed of its failure says that another process was lost.
  void note_loss(int rank);
  void note_news(int rank, const FailureNews& news, TimePoint at);
  void note_end(int rank, bool has_failed, TimePoint at);

  // The first failure so far. `must_wait`: some rank that is not known to have failed may have been before it.
  struct Finding {
    int rank = -1;  // -1: none, or not known yet
    bool must_wait = false;
  };
  // `is_late`: whoever has not failed by now has not been the first.
  [[nodiscard]] Finding first(bool is_late) const;

  // What it has told of its own failure; null: nothing.
  [[nodiscard]] const FailureNews* told(int rank) const;
  // It has failed, or is about to, because another one has.
  [[nodiscard]] bool follows(int rank) const;
  // The rank of which it follows, if that is known; else -1.
  [[nodiscard]] int cause_of(int rank) const { return at(rank).by; }

 private:
  struct Mark {
    std::uint64_t number = 0;  // of all marks, in the order of their arrival
    TimePoint at;
  };
  struct Record {
    std::optional<Mark> sign;
    std::optional<Mark> news;  // that it is ending
    std::optional<Mark> end;
    FailureNews told;  // with `news`
    bool has_failed = false;
    bool is_follower = false;
    bool has_lost_a_peer = false;
    int by = -1;

    [[nodiscard]] bool has_ended() const { return end.has_value(); }
    [[nodiscard]] bool is_failure() const { return news.has_value() || (has_ended() && has_failed); }
  };

  [[nodiscard]] const Record& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Record& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Mark mark(TimePoint when) { return {++marks_, when}; }
  // When it failed: of a rank of which only the end is known, at the sign that it gave before, if that is not too old.
  [[nodiscard]] std::uint64_t number_of(const Record& failed) const;
  // The failure that came first, among those that follow others or those that do not.
  [[nodiscard]] int earliest(bool are_followers) const;
  // It runs, has given a sign before `failed` has, and may be ending.
  [[nodiscard]] bool may_be_before(const Record& rank, const Record& failed) const;
  // Some rank that may be the one which others follow has neither failed nor ended.
  [[nodiscard]] bool is_leader_unknown() const;
  [[nodiscard]] bool is_suspect(int rank) const;

  const Duration patience_;
  std::vector<Record> ranks_;
  std::uint64_t marks_ = 0;
};

}  // namespace hvd::launch
