// HostOffers decides which ranks are to join a running job, and which are to leave it, by the hosts that it may use
// now. A host that has failed is left alone for a time, which doubles with each failure. Pure: times come with the
// calls.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/host_spec.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// HostedRank is a rank that runs, or is being started.
struct HostedRank {
  int rank = 0;
  std::string host;
  int local_rank = 0;
  // Its agent has joined by itself, and leaves by itself, whatever hosts there are.
  bool has_called = false;
  // It is to leave as soon as the others are enough.
  bool is_leaving = false;
};

// Returns those that are neither to leave by themselves nor in `leaving`, by their numbers.
std::vector<HostedRank> staying(const std::vector<HostedRank>& there, const std::vector<int>& leaving = {});

// JoiningRanks are to be started on a host, beside those that it may have already.
struct JoiningRanks {
  HostSpec host;
  int first_local = 0;  // the local rank of the first
  int count = 0;
};

// Seats are hosts for all ranks of a job, in the order of the hosts.
struct Seats {
  HostList hosts;
  int count = 0;  // ranks; at most as many as the hosts have slots
};

class HostOffers {
 public:
  struct Limits {
    int most = 0;               // ranks of the job
    Duration cooldown_least{};  // how long a host is left alone after its first failure
    Duration cooldown_most{};
  };

  HostOffers(HostList hosts, const Limits& limits) : hosts_(std::move(hosts)), limits_(limits) {}

  // These hosts, with these slots, may be used from now on.
  void set(HostList hosts) { hosts_ = std::move(hosts); }
  // The host has failed. Returns for how long it is left alone, which is `least` at least. Ranks of it that run may
  // stay.
  Duration exclude(const std::string& host, TimePoint now, Duration least = {});

  // Returns what is to be started, in the order of the hosts. Ranks that are to leave are no part of the most that the
  // job may have: those that take their places are started before.
  [[nodiscard]] std::vector<JoiningRanks> joining(const std::vector<HostedRank>& there, TimePoint now) const;
  // Returns where a job that has no ranks now can start.
  [[nodiscard]] Seats seats(TimePoint now) const;
  // Returns the ranks of hosts that may not be used any more, or of slots that a host has no more; and those that are
  // too many, the last first, because a host may be used again whose place others have taken.
  [[nodiscard]] std::vector<int> leaving(const std::vector<HostedRank>& there) const;
  // Returns whether the host of the rank may be used, and has a slot for it.
  [[nodiscard]] bool has_slot_for(const HostedRank& rank) const;
  // Returns when a host may be used again that is left alone now; nothing: none is.
  [[nodiscard]] std::optional<TimePoint> next_return(TimePoint now) const;

 private:
  struct Failures {
    int count = 0;
    TimePoint last;
    TimePoint until;
  };

  HostList hosts_;
  const Limits limits_;
  std::map<std::string, Failures> failures_;
};

}  // namespace hvd::launch
