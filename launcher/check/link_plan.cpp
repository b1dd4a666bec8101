#include "launcher/check/link_plan.h"

#include <algorithm>

namespace hvd::launch {
namespace {

std::vector<LinkRound> plan_all_pairs(int hosts) {
  std::vector<LinkRound> rounds;
  const int places = hosts + hosts % 2;  // with an odd number of hosts, one host has no partner in each round
  for (int round = 0; round + 1 < places; ++round) {
    const auto host_at = [&](int place) { return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1); };
    LinkRound pairs;
    for (int place = 0; place < places / 2; ++place) {
      const int a = host_at(place);
      const int b = host_at(places - 1 - place);
      if (std::max(a, b) < hosts) {
        pairs.emplace_back(std::min(a, b), std::max(a, b));
      }
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

std::vector<LinkRound> plan_ring(int hosts) {
  std::vector<LinkRound> rounds(hosts % 2 == 0 ? 2 : 3);
  for (int host = 0; host < hosts; ++host) {
    const bool is_last_of_odd = hosts % 2 == 1 && host == hosts - 1;
    rounds[is_last_of_odd ? 2 : static_cast<std::size_t>(host % 2)].emplace_back(host, (host + 1) % hosts);
  }
  return rounds;
}

}  // namespace

std::vector<LinkRound> plan_links(int hosts) {
  if (hosts < 2) {
    return {};
  }
  return hosts <= kMostHostsForAllPairs ? plan_all_pairs(hosts) : plan_ring(hosts);
}

}  // namespace hvd::launch
