// Mesh holds all connections of a rank to other ranks. They are made once, when the ranks join.
//
//  - control: a stream socket between the coordinator (rank 0) and every other rank, a unix socket within its node and
//    TCP between nodes; the engine talks over it (coordinate/control_channel.h).
//  - data between nodes: one TCP connection between the leaders of every two nodes.
//  - rounds between nodes: another one between the leaders of those nodes that exchange small data in pairs, if there
//    are few nodes (link/host_rounds.h). The threads that call use it, while data connections are the engine's.
//  - data within a node: one shared memory segment of all its ranks (link/shm_segment.h), a memfd handed over by the
//    leader, so that nothing is left in /dev/shm however the ranks die.
// Every socket starts with the mutual proof of rendezvous/handshake.h, and a stranger's connection is closed. With
// MeshOptions::is_sealed, data between nodes is encrypted after that (rendezvous/record.h); each connection has its own
// keys.
//
// Thread: join() blocks the caller; afterwards engine only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"
#include "runtime/link/host_rounds.h"
#include "runtime/link/link_steps.h"
#include "runtime/link/meeting.h"
#include "runtime/link/sealed_stream.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class ShmSegment;
class SubsetStore;

// JobNumbers are those of a process set's ranks in the job, by their ranks in the set: errors name these. Empty: the
// same numbers.
struct JobNumbers {
  std::vector<int> ranks;
  std::vector<int> nodes;
};

struct MeshOptions {
  std::string node_address;  // numeric address at which other nodes reach this one; may be empty on a single node
  std::string congestion;    // of connections between nodes: see choose_congestion()
  bool is_sealed = false;    // connections between nodes are encrypted; the same on all ranks
  std::string scratch_dir;   // a 0700 directory for the node's unix sockets; empty: one is made and removed
  std::size_t shm_slot_bytes = 4U << 20U;  // staging per rank in the node's segment
  std::string word;                        // rank 0's is sent to all others; the mesh does not interpret it
  bool has_control = true;                 // false for a process set, whose ranks use the job's control links
  JobNumbers in_job{};
};

class Mesh {
 public:
  // Joins all ranks of `map` (its node_of_rank is filled in). Returns when all links are up, or with an error that
  // names the rank and address which could not be reached.
  static Result<std::unique_ptr<Mesh>> join(RankMap map, Store& store, const MeshOptions& options, Log& log,
                                            Deadline deadline);
  // Takes part in the exchanges of a mesh for a rank of the job that is not in it, while the others join over `store`.
  static Result<void> stay_out(SubsetStore& store, Deadline deadline);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  [[nodiscard]] const RankMap& map() const { return map_; }
  // Rank 0's MeshOptions::word, the same on all ranks.
  [[nodiscard]] const std::string& word() const { return word_; }
  // The coordinator may ask for any other rank, and every other rank for 0. Non-blocking.
  [[nodiscard]] int control_fd(int rank) const { return control_[static_cast<std::size_t>(rank)].get(); }
  // The connection to the leader of another node; leaders only. Non-blocking.
  [[nodiscard]] int data_fd(int node_index) const { return data_[static_cast<std::size_t>(node_index)].get(); }
  // The frames that have gone over that connection so far. The user of the connection counts them.
  [[nodiscard]] LinkCounts& data_counts(int node_index) { return data_counts_[static_cast<std::size_t>(node_index)]; }
  // Returns what errors call the two ends of a connection to the leader of another node.
  [[nodiscard]] HostLink::Ends ends_of(int node_index) const;
  // The encryption of a connection, or null if it is not encrypted. It lasts as long as the mesh, because starting
  // again with the same key would repeat nonces.
  [[nodiscard]] ByteFilter* control_filter(int rank) const {
    return control_filters_[static_cast<std::size_t>(rank)].get();
  }
  [[nodiscard]] SealedStream* data_seal(int node_index) const {
    return data_seals_[static_cast<std::size_t>(node_index)].get();
  }
  // The rounds of the leaders; null if this rank leads no node, and with one node or more than HostRounds::kMostNodes.
  [[nodiscard]] const std::shared_ptr<HostRounds>& rounds() const { return rounds_; }
  // The node's shared memory; null when this node has one rank.
  [[nodiscard]] const std::shared_ptr<ShmSegment>& shm() const { return shm_; }

 private:
  explicit Mesh(RankMap map);
  static Result<std::unique_ptr<Mesh>> meet(RankMap map, Store& store, const MeshOptions& options, Log& log,
                                            Deadline deadline);
  // Stores a connection that has been made, or hands over the shared memory through it.
  Result<void> adopt(Meeting::Met met, std::vector<std::unique_ptr<HostLink>>& round_links, Store& store,
                     Deadline deadline);

  RankMap map_;
  std::string word_;
  JobNumbers in_job_;
  std::string congestion_;
  std::vector<Fd> control_;  // [size]
  std::vector<Fd> data_;     // [node_count]
  std::vector<LinkCounts> data_counts_;
  std::vector<std::unique_ptr<ByteFilter>> control_filters_;  // [size]
  std::vector<std::unique_ptr<SealedStream>> data_seals_;     // [node_count]
  std::shared_ptr<ShmSegment> shm_;                           // shared: calling threads use it without the engine
  std::shared_ptr<HostRounds> rounds_;                        // likewise
};

}  // namespace hvd
