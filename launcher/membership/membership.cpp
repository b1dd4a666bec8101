#include "launcher/membership/membership.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

namespace hvd::launch {

Membership::Membership(const Placement& placement, int least, int most)
    : placement_(placement), least_(least), most_(most), ranks_(static_cast<std::size_t>(placement.size)) {
  now_.members.resize(ranks_.size());
  std::iota(now_.members.begin(), now_.members.end(), 0);
}

void Membership::add(int count) {
  ranks_.insert(ranks_.end(), static_cast<std::size_t>(count), Rank{Process::kStarting, false, false, false, false});
}

void Membership::set_leaving(const std::vector<int>& ranks) {
  for (Rank& rank : ranks_) {
    rank.is_leaving = false;
  }
  for (const int rank : ranks) {
    at(rank).is_leaving = true;
    at(rank).is_released = at(rank).is_released || !at(rank).is_member;
  }
}

void Membership::on_starting(int rank) {
  at(rank).process = Process::kStarting;
}

void Membership::on_lost(int rank) {
  is_broken_ = is_broken_ || at(rank).is_member;
  // Its host is to be given back as before, also when another process has taken its place.
  at(rank) = Rank{Process::kNone, false, at(rank).is_leaving, at(rank).is_released, false};
}

void Membership::on_met() {
  has_met_ = true;
  for (const int rank : now_.members) {
    at(rank).has_met = true;
  }
}

void Membership::on_waiting(int rank, std::uint32_t known) {
  // Who is lost may live for a moment more, and call.
  if (known == now_.number && !at(rank).is_released && at(rank).process != Process::kNone) {
    at(rank).process = Process::kWaiting;
  }
}

void Membership::on_done(int rank) {
  is_ending_ = is_ending_ || !at(rank).is_released;
  at(rank) = Rank{Process::kNone, false, false, at(rank).is_released};
}

std::optional<Generation> Membership::next(bool may_shrink) {
  bool is_any_left = false;
  bool all_wait = true;
  for (const int rank : now_.members) {
    is_any_left = is_any_left || at(rank).is_member;
    all_wait = all_wait && (!at(rank).is_member || at(rank).process == Process::kWaiting);
  }
  if (!is_broken_ && !(is_any_left && all_wait)) {
    return std::nullopt;
  }
  std::vector<int> members = in_order();
  const bool waits = is_broken_ && !may_shrink && members.size() < now_.members.size();
  if (static_cast<int>(members.size()) < std::max(is_ending_ ? 1 : least_, 1) || (waits && !is_ending_)) {
    return std::nullopt;
  }
  std::vector<int> released;
  std::copy_if(now_.members.begin(), now_.members.end(), std::back_inserter(released), [&](int rank) {
    return at(rank).is_member && std::find(members.begin(), members.end(), rank) == members.end();
  });
  for (const int rank : released) {
    at(rank) = Rank{Process::kNone, false, false, true};
  }
  std::vector<int> newcomers;
  std::copy_if(members.begin(), members.end(), std::back_inserter(newcomers),
               [this](int rank) { return is_newcomer(rank); });
  const bool is_repeated = is_broken_up_ && members == now_.members && newcomers.empty();
  now_ = Generation{now_.number + 1, std::move(members), std::move(newcomers), std::move(released), is_repeated};
  is_broken_ = false;
  is_broken_up_ = false;
  has_met_ = false;
  is_asked_ = false;
  for (const int rank : now_.members) {
    at(rank).process = Process::kIn;
    at(rank).is_member = true;
  }
  return now_;
}

bool Membership::must_ask(bool is_late) {
  const bool takes_in = any_newcomer() && room() > 0 && (!any_starting() || is_late);
  if (is_broken_ || is_asked_ || is_ending_ || !(takes_in || can_release())) {
    return false;
  }
  is_asked_ = true;
  return true;
}

bool Membership::awaits_others() const {
  return !is_broken_ && !is_asked_ && !is_ending_ && any_newcomer() && any_starting();
}

int Membership::unmet_rank() const {
  if (is_broken_ || has_met_) {
    return -1;  // its members all wait for another generation, or leave it one after the other
  }
  const auto found = std::find_if(now_.members.begin(), now_.members.end(),
                                  [this](int rank) { return at(rank).process == Process::kWaiting; });
  return found == now_.members.end() ? -1 : *found;
}

std::vector<std::vector<int>> Membership::unmet_hosts() const {
  if (unmet_rank() < 0) {
    return {};
  }
  std::map<int, std::vector<int>> members;  // of each host
  for (const int rank : now_.members) {
    members[placement_.node_of(rank).machine].push_back(rank);
  }
  std::vector<std::vector<int>> hosts;
  for (const auto& [host, ranks] : members) {
    const bool are_new = std::none_of(ranks.begin(), ranks.end(), [this](int rank) { return at(rank).has_met; });
    const bool is_back =
        std::any_of(ranks.begin(), ranks.end(), [this](int rank) { return at(rank).process == Process::kWaiting; });
    if (are_new && is_back) {
      hosts.push_back(ranks);
    }
  }
  return hosts;
}

int Membership::room() const {
  const bool releases = can_release();
  return most_ - static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [releases](const Rank& rank) {
           return rank.is_member && !(releases && rank.is_leaving);
         }));
}

bool Membership::any_newcomer() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.process == Process::kWaiting && !rank.is_member && !rank.is_released;
  });
}

bool Membership::can_release() const {
  int staying = 0;
  bool any_leaving = false;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    staying += is_candidate(rank) && !at(rank).is_leaving ? 1 : 0;
    any_leaving = any_leaving || (at(rank).is_member && at(rank).is_leaving);
  }
  return any_leaving && !is_ending_ && staying >= std::max(least_, 1);
}

bool Membership::any_starting() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.process == Process::kStarting && !rank.is_released; });
}

std::vector<int> Membership::in_order() const {
  const bool releases = can_release();
  std::vector<int> nodes;  // in the order of their first members
  const auto note_node = [&](int rank) {
    const int node = placement_.node_of(rank).machine;
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
      nodes.push_back(node);
    }
  };
  std::vector<int> survivors;
  for (const int rank : now_.members) {
    if (at(rank).is_member && !(releases && at(rank).is_leaving)) {
      survivors.push_back(rank);
      note_node(rank);
    }
  }
  std::vector<int> newcomers;
  const int room = this->room();
  for (int rank = 0; rank < static_cast<int>(ranks_.size()) && !is_ending_; ++rank) {
    if (is_newcomer(rank) && static_cast<int>(newcomers.size()) < room) {
      newcomers.push_back(rank);
      note_node(rank);
    }
  }
  std::vector<int> members;
  for (const int node : nodes) {
    for (const std::vector<int>* group : {&survivors, &newcomers}) {
      std::copy_if(group->begin(), group->end(), std::back_inserter(members),
                   [&](int rank) { return placement_.node_of(rank).machine == node; });
    }
  }
  return members;
}

namespace {

// The local ranks with which the ranks of a host were started, if these are there without a gap: one that was started
// again has that of the process whose place it takes. Else their places, since programs count on local ranks from 0 on.
std::vector<int> slots_of(const Placement& placement, const std::vector<int>& ranks) {
  std::vector<int> slots;
  for (const int rank : ranks) {
    const std::vector<RankPlan>& of_node = placement.node_of(rank).ranks;
    slots.push_back(of_node[static_cast<std::size_t>(rank - of_node.front().rank)].local_rank);
  }
  std::vector<int> places(slots.size());
  std::iota(places.begin(), places.end(), 0);
  return std::is_permutation(slots.begin(), slots.end(), places.begin()) ? slots : places;
}

}  // namespace

std::map<int, GenerationPlace> places_of(const Placement& placement, const std::vector<int>& members) {
  std::vector<std::pair<int, std::vector<int>>> nodes;  // of the placement, and their members
  for (const int member : members) {
    const int node = placement.node_of(member).machine;
    if (nodes.empty() || nodes.back().first != node) {
      nodes.emplace_back(node, std::vector<int>());
    }
    nodes.back().second.push_back(member);
  }
  std::map<int, GenerationPlace> places;
  std::int32_t rank = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::vector<int>& own = nodes[node].second;
    const std::vector<int> slots = slots_of(placement, own);
    for (std::size_t local = 0; local < own.size(); ++local) {
      const auto has_one = [local](const auto& other) { return other.second.size() > local; };
      GenerationPlace& place = places[own[local]];
      place.rank = rank++;
      place.size = static_cast<std::int32_t>(members.size());
      place.local_rank = static_cast<std::int32_t>(local);
      place.local_size = static_cast<std::int32_t>(own.size());
      place.cross_rank = static_cast<std::int32_t>(
          std::count_if(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(node), has_one));
      place.cross_size = static_cast<std::int32_t>(std::count_if(nodes.begin(), nodes.end(), has_one));
      place.node_index = static_cast<std::int32_t>(node);
      place.node_count = static_cast<std::int32_t>(nodes.size());
      place.slot = slots[local];
    }
  }
  return places;
}

}  // namespace hvd::launch
