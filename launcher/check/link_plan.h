// Which links between hosts are measured, and which of them at the same time. Pure.
#pragma once

#include <utility>
#include <vector>

namespace hvd::launch {

// Up to so many hosts, every pair is measured: 120 pairs in 15 rounds.
inline constexpr int kMostHostsForAllPairs = 16;

// Pairs that are measured at the same time: no host is in two of them, so that no measurement disturbs another more
// than the network between them does.
using LinkRound = std::vector<std::pair<int, int>>;

// All pairs of `hosts` hosts: the circle method of round-robin tournaments (one host stays, the others move on by one
// place each round). Above kMostHostsForAllPairs each host and the next, the last and the first.
std::vector<LinkRound> plan_links(int hosts);

}  // namespace hvd::launch
