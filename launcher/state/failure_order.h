// FailureOrder decides which rank of a job failed first, from what was observed and reported of each. Processes end in
// another order than they fail: a rank that has raised may still run its exit functions while the others, which fail
// because of it, have already ended.
//
// Events are ordered by their arrival at the launcher. The clocks of hosts differ by more than the time between two
// failures. A failure that another one caused mostly says so in its own report. Pure: times come with the events.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/rendezvous/failure_news.h"

namespace hvd::launch {

class FailureOrder {
 public:
  // `patience` is how long after a sign of failure a rank may take to end. An older sign is taken for an exception that
  // was caught and only printed.
  FailureOrder(int size, Duration patience);

  // So many ranks more have joined the job.
  void add(int count) { ranks_.resize(ranks_.size() + static_cast<std::size_t>(count)); }
  // The rank is a new process, of which nothing is known yet.
  void note_start(int rank);
  // The rank's runtime is about to meet the others: whatever ended the rank's previous job no longer counts.
  void note_joined(int rank);
  // A traceback or an abort message begins on the rank's standard error. Alone it proves nothing, since the program may
  // catch the exception and go on.
  void note_sign(int rank, TimePoint at);
  // The rank printed a failure which says that another process was lost.
  void note_loss(int rank);
  void note_news(int rank, const FailureNews& news, TimePoint at);
  void note_end(int rank, bool has_failed, TimePoint at);
  // The job does without the rank: what was known of it says nothing of a later failure.
  void note_lost(int rank);

  // Finding is the first failure so far. `must_wait`: some rank that is not known to have failed may have failed before
  // it.
  struct Finding {
    int rank = -1;  // -1: none, or not known yet
    bool must_wait = false;
  };
  // `is_late`: the wait is over; a rank that has not failed by now was not the first.
  [[nodiscard]] Finding first(bool is_late) const;

  // Returns what the rank reported of its own failure; null: nothing.
  [[nodiscard]] const FailureNews* told(int rank) const;
  // True when the rank has failed, or is about to, because another rank failed.
  [[nodiscard]] bool follows(int rank) const;
  // Returns the rank whose failure caused this one's, if that is known; else -1.
  [[nodiscard]] int cause_of(int rank) const { return at(rank).by; }

 private:
  struct Mark {
    std::uint64_t number = 0;  // counts all marks, in the order of their arrival
    TimePoint at;
  };
  struct Record {
    std::optional<Mark> sign;
    std::optional<Mark> news;     // the rank reported that it is ending
    std::optional<Mark> noticed;  // the rank reported a failure that it may live with
    std::optional<Mark> end;
    std::optional<Mark> named;  // another rank reported that it follows this one
    FailureNews told;           // valid with `news` or `noticed`
    bool has_failed = false;
    bool is_follower = false;
    bool has_lost_a_peer = false;
    int by = -1;

    [[nodiscard]] bool has_ended() const { return end.has_value(); }
    // Others fail because this rank has left the job, and it had a failure of its own just before.
    [[nodiscard]] bool has_left_failing(Duration patience) const {
      return named && noticed && !has_ended() && !news && named->at - noticed->at <= patience;
    }
  };

  [[nodiscard]] const Record& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Record& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool is_failure(const Record& rank) const {
    return rank.news || (rank.has_ended() && rank.has_failed) || rank.has_left_failing(patience_);
  }
  Mark mark(TimePoint when) {
    latest_ = std::max(latest_, when);
    return {++marks_, when};
  }
  // Returns the number of the mark at which the rank failed. When only the end of a rank is known, that is its earlier
  // sign, unless the sign is too old, or the first report that names it.
  [[nodiscard]] std::uint64_t number_of(const Record& failed) const;
  // Returns the rank with the first failure, among those that follow others or among those that do not.
  [[nodiscard]] int earliest(bool are_followers) const;
  // True when the rank still runs, gave a sign before `failed` did or was named by another rank, and may be ending.
  [[nodiscard]] bool may_be_before(const Record& rank, const Record& failed) const;
  // True when a rank that others may be following has neither failed nor ended.
  [[nodiscard]] bool is_leader_unknown() const;
  [[nodiscard]] bool is_suspect(int rank) const;

  const Duration patience_;
  std::vector<Record> ranks_;
  std::uint64_t marks_ = 0;
  TimePoint latest_{};  // of all marks
};

}  // namespace hvd::launch
