// JobRestarts decides whether a job whose ranks cannot go on without one another starts anew when one of them is lost,
// and on which hosts. Each start is a job of its own for JobRunner: new agents, a new secret and a new port, so that
// nothing of an earlier start can disturb it. Pure: times come with the calls.
#pragma once

#include <vector>

#include "launcher/offers/host_offers.h"
#include "launcher/state/job_state.h"

namespace hvd::launch {

class JobRestarts {
 public:
  struct Limits {
    int restarts = 0;       // at most so many; those do not count in which no rank ran
    int least = 0;          // ranks that a start must have
    bool may_wait = false;  // something tells of hosts: where these are too few, others may come
    HostOffers::Limits hosts{};
  };

  JobRestarts(HostList hosts, const Limits& limits) : limits_(limits), offers_(std::move(hosts), limits.hosts) {}

  // A start begins, and may end without a word of it.
  void on_begun() { is_due_ = false; }
  // A start has ended so. Returns true when all ranks are to be started again, on seats(). Hosts that it lost are left
  // alone for a time, which is that of `ranks_may_stay` at least: for each node, how long from now it may still have
  // ranks; none for nodes beyond its end.
  bool on_ended(const Placement& placement, const JobState& state, TimePoint now,
                const std::vector<Duration>& ranks_may_stay = {});

  [[nodiscard]] bool is_due() const { return is_due_; }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] int limit() const { return limits_.restarts; }
  // The hosts that there are, to be told of others.
  HostOffers& offers() { return offers_; }
  // False when a start could not keep all that its ranks printed.
  [[nodiscard]] bool has_kept_all() const { return has_kept_all_; }

 private:
  const Limits limits_;
  HostOffers offers_;
  int number_ = 0;
  int unreached_starts_ = 0;  // before the first in which ranks ran
  bool is_due_ = false;
  bool has_kept_all_ = true;
};

}  // namespace hvd::launch
