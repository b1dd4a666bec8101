// Where the ranks of MPI are: who shares a host, as each has told, and at which address hosts reach each other. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"

namespace hvd {

// What a rank tells of itself.
struct MpiPlace {
  std::string host;              // the same for all that a user would say are on one machine
  std::string sharing;           // beside it: the same for those that can hand each other memory and sockets
  std::string network;           // the same for those that have the same addresses
  std::vector<std::string> ips;  // numeric, without loopback
  std::string chosen_ip;         // that the user has set; may be empty
};

// What the program is told: the rank's number among those of its host, and so on.
RankMap map_by_hosts(std::span<const MpiPlace> places, int rank);
// How the ranks are linked: a node is a run of ranks that follow each other and can share memory. Where mpirun deals
// ranks out in turns, a host has several nodes.
RankMap map_by_runs(std::span<const MpiPlace> places, int rank);
// At which address this rank's host is reached by the others: the one that is the nearest to one of theirs. What
// several hosts have, as bridges of containers, is nobody's address. Empty when no other node is there.
Result<std::string> address_among(std::span<const MpiPlace> places, int rank);

// As it travels.
std::string encode(const MpiPlace& place);
Result<MpiPlace> decode_mpi_place(const std::string& body, int rank);

}  // namespace hvd
