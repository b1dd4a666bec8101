#include "launcher/offers/host_offers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace hvd::launch {
namespace {

// A host that has worked for so long counts as one that has never failed.
constexpr auto kForgiven = std::chrono::hours(1);
constexpr int kMostDoublings = 20;

}  // namespace

Duration HostOffers::exclude(const std::string& host, TimePoint now, Duration least) {
  Failures& failures = failures_[host];
  if (now < failures.until) {  // it is known to have failed
    failures.until = std::max(failures.until, now + least);
    return failures.until - now;
  }
  failures.count = now - failures.last > kForgiven ? 1 : failures.count + 1;
  failures.last = now;
  const Duration delay = limits_.cooldown_least * (1 << std::min(failures.count - 1, kMostDoublings));
  failures.until = now + std::max(std::min(delay, limits_.cooldown_most), least);
  return failures.until - now;
}

std::vector<JoiningRanks> HostOffers::joining(const std::vector<HostedRank>& there, TimePoint now) const {
  std::map<std::string, std::set<int>> used;  // local ranks of each host
  for (const HostedRank& rank : there) {
    used[rank.host].insert(rank.local_rank);
  }
  int room = limits_.most - static_cast<int>(staying(there, leaving(there)).size());
  std::vector<JoiningRanks> found;
  for (const HostSpec& host : hosts_) {
    const auto failures = failures_.find(host.name);
    const bool is_left_alone = failures != failures_.end() && now < failures->second.until;
    const std::set<int>& taken = used[host.name];
    for (int first = 0; !is_left_alone && room > 0 && first < host.slots; ++first) {
      int count = 0;
      while (count < room && first + count < host.slots && !taken.contains(first + count)) {
        ++count;
      }
      if (count > 0) {
        found.push_back({host, first, count});
        room -= count;
        first += count;
      }
    }
  }
  return found;
}

Seats HostOffers::seats(TimePoint now) const {
  Seats seats;
  for (const JoiningRanks& ranks : joining({}, now)) {
    seats.hosts.push_back(ranks.host);
    seats.count += ranks.count;
  }
  return seats;
}

std::vector<HostedRank> staying(const std::vector<HostedRank>& there, const std::vector<int>& leaving) {
  std::vector<HostedRank> ranks;
  std::copy_if(there.begin(), there.end(), std::back_inserter(ranks), [&leaving](const HostedRank& rank) {
    return !rank.is_leaving && std::find(leaving.begin(), leaving.end(), rank.rank) == leaving.end();
  });
  return ranks;
}

std::vector<int> HostOffers::leaving(const std::vector<HostedRank>& there) const {
  std::vector<int> ranks;
  for (const HostedRank& rank : there) {
    if (!rank.has_called && !has_slot_for(rank)) {
      ranks.push_back(rank.rank);
    }
  }
  std::vector<HostedRank> others = staying(there, ranks);
  std::sort(others.begin(), others.end(), [](const auto& one, const auto& other) { return one.rank > other.rank; });
  std::size_t count = others.size();
  for (const HostedRank& rank : others) {
    if (count > static_cast<std::size_t>(limits_.most) && !rank.has_called) {
      ranks.push_back(rank.rank);
      --count;
    }
  }
  return ranks;
}

bool HostOffers::has_slot_for(const HostedRank& rank) const {
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [&rank](const HostSpec& host) { return host.name == rank.host && rank.local_rank < host.slots; });
}

std::optional<TimePoint> HostOffers::next_return(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const auto& [host, failures] : failures_) {
    if (now < failures.until && (!next || failures.until < *next)) {
      next = failures.until;
    }
  }
  return next;
}

}  // namespace hvd::launch
