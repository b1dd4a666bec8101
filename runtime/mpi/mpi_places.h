// These functions compute the placement of MPI's ranks: which ranks share a host, from what each has reported, and the
// address at which hosts reach each other. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"

namespace hvd {

// MpiPlace is what a rank reports about itself.
struct MpiPlace {
  std::string host;              // the same for all ranks that a user would call on one machine
  std::string sharing;           // the same for ranks that can also share memory and pass sockets to each other
  std::string network;           // the same for ranks that have the same addresses
  std::vector<std::string> ips;  // numeric, without loopback
  std::string chosen_ip;         // the address that the user has set; may be empty
};

// Returns the placement that the program sees: the rank's number among those of its host, and so on.
RankMap map_by_hosts(std::span<const MpiPlace> places, int rank);
// Returns the placement by which the ranks are linked: a node is a run of consecutive ranks that can share memory. If
// mpirun deals ranks out in turns, a host has several nodes.
RankMap map_by_runs(std::span<const MpiPlace> places, int rank);
// Returns the address at which the others reach this rank's host: the one that is nearest to one of theirs. An address
// that several hosts have, such as a container bridge's, is never chosen. It is empty if there is no other node.
Result<std::string> address_among(std::span<const MpiPlace> places, int rank);

// These encode and decode a place as it is sent.
std::string encode(const MpiPlace& place);
Result<MpiPlace> decode_mpi_place(const std::string& body, int rank);

}  // namespace hvd
