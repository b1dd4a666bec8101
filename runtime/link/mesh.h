// Mesh: who is connected to whom, made once when the ranks join.
//
//  - control: a stream socket between the coordinator (rank 0) and every other rank, a unix socket within its node and
//    TCP between nodes; the engine talks over it (engine/control_channel.h).
//  - data between nodes: one TCP connection between the leaders of every two nodes.
//  - data within a node: one shared memory segment of all its ranks (link/shm_segment.h), a memfd handed over by the
//    leader, so that nothing is left in /dev/shm however the ranks die.
// Every socket starts with the mutual proof of rendezvous/handshake.h; a stranger's connection is closed and forgotten.
// With MeshOptions::is_sealed what follows between nodes is encrypted (rendezvous/record.h), with keys of each
// connection's own.
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
#include "runtime/link/link_steps.h"
#include "runtime/link/meeting.h"
#include "runtime/link/sealed_stream.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class ShmSegment;
class SubsetStore;

struct MeshOptions {
  std::string node_address;  // numeric address at which other nodes reach this one; may be empty on a single node
  std::string congestion;    // of connections between nodes: see choose_congestion()
  bool is_sealed = false;    // connections between nodes are encrypted; the same on all ranks
  std::string scratch_dir;   // a 0700 directory for the node's unix sockets; empty: one is made and removed
  std::size_t shm_slot_bytes = 4U << 20U;  // staging per rank in the node's segment
  std::string word;                        // what rank 0 tells all others; not the mesh's to understand
  bool has_control = true;  // false: no control links; a process set's ranks are told what to do by those of the job
};

class Mesh {
 public:
  // Joins all ranks of `map` (its node_of_rank is filled in). Returns when all links are up, or with an error that
  // names the rank and address which could not be reached.
  static Result<std::unique_ptr<Mesh>> join(RankMap map, Store& store, const MeshOptions& options, Log& log,
                                            Deadline deadline);
  // For ranks of a job that are not among those of the mesh, while these join over `store`.
  static Result<void> stay_out(SubsetStore& store, Deadline deadline);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  [[nodiscard]] const RankMap& map() const { return map_; }
  // Rank 0's MeshOptions::word, the same on all ranks.
  [[nodiscard]] const std::string& word() const { return word_; }
  // The coordinator asks for any other rank; every other rank asks for 0. Non-blocking.
  [[nodiscard]] int control_fd(int rank) const { return control_[static_cast<std::size_t>(rank)].get(); }
  // Between leaders only: the connection to the leader of another node. Non-blocking.
  [[nodiscard]] int data_fd(int node_index) const { return data_[static_cast<std::size_t>(node_index)].get(); }
  // What has gone over it so far; counted by whoever uses it.
  [[nodiscard]] LinkCounts& data_counts(int node_index) { return data_counts_[static_cast<std::size_t>(node_index)]; }
  // What the bytes of a connection go through where it is encrypted, else null; they last as long as the mesh, since no
  // key may be begun with twice.
  [[nodiscard]] ByteFilter* control_filter(int rank) const {
    return control_filters_[static_cast<std::size_t>(rank)].get();
  }
  [[nodiscard]] SealedStream* data_seal(int node_index) const {
    return data_seals_[static_cast<std::size_t>(node_index)].get();
  }
  // Null when this node has one rank.
  [[nodiscard]] const std::shared_ptr<ShmSegment>& shm() const { return shm_; }

 private:
  explicit Mesh(RankMap map);
  static Result<std::unique_ptr<Mesh>> meet(RankMap map, Store& store, const MeshOptions& options, Log& log,
                                            Deadline deadline);
  // Puts a connection that has been made where it belongs, or hands the shared memory over through it.
  Result<void> adopt(Meeting::Met met, Store& store, Deadline deadline);

  RankMap map_;
  std::string word_;
  std::string congestion_;
  std::vector<Fd> control_;  // [size]
  std::vector<Fd> data_;     // [node_count]
  std::vector<LinkCounts> data_counts_;
  std::vector<std::unique_ptr<ByteFilter>> control_filters_;  // [size]
  std::vector<std::unique_ptr<SealedStream>> data_seals_;     // [node_count]
  std::shared_ptr<ShmSegment> shm_;                           // shared with those who use it without the engine
};

}  // namespace hvd
