// plan_links() decides which links between hosts are measured, and which of them at the same time. Pure.
#pragma once

#include <utility>
#include <vector>

namespace hvd::launch {

// Up to this many hosts, every pair is measured: 120 pairs in 15 rounds.
inline constexpr int kMostHostsForAllPairs = 16;

// LinkRound is a set of pairs that are measured at the same time. No host is in two of them, so measurements disturb
// each other only through the network between the hosts.
using LinkRound = std::vector<std::pair<int, int>>;

// Returns all pairs of `hosts` hosts, by the circle method of round-robin tournaments: one host stays, the others move
// on by one place each round. Above kMostHostsForAllPairs it pairs each host with the next, and the last with the
// first.
std::vector<LinkRound> plan_links(int hosts);

}  // namespace hvd::launch
