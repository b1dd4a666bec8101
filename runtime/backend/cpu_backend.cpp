#include "runtime/backend/cpu_backend.h"

#include <sched.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd {
namespace {

std::vector<StreamPeer> leader_peers(Mesh& mesh) {
  const RankMap& map = mesh.map();
  std::vector<StreamPeer> peers;
  for (int node = 0; node < map.node_count; ++node) {
    const auto leader = std::find(map.node_of_rank.begin(), map.node_of_rank.end(), node) - map.node_of_rank.begin();
    peers.push_back(StreamPeer{mesh.data_fd(node),
                               "node " + std::to_string(node) + " (rank " + std::to_string(leader) + ")",
                               &mesh.data_counts(node), "rank " + std::to_string(map.rank), mesh.data_seal(node)});
  }
  return peers;
}

bool has_core_to_spare() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 1;
}

// If there are more ranks than cores, polling may keep another rank from running, or the program's other threads.
Looks looks_of(const Mesh& mesh) {
  const bool may_look = mesh.shm() == nullptr ? has_core_to_spare() : mesh.shm()->spins() > 0;
  return Looks(may_look ? Looks::kMost : 0);
}

}  // namespace

CpuBackend::CpuBackend(Mesh& mesh, const Tuning& tuning)
    : map_(mesh.map()),
      segment_bytes_(tuning.segment_bytes),
      node_(mesh.shm().get(), tuning),
      leaders_(leader_peers(mesh), map_.node_index, looks_of(mesh), tuning) {}

Result<void> CpuBackend::broadcast(void* data, std::size_t size_bytes, int root, Interrupt& interrupt) {
  HVD_CHECK(root >= 0 && root < map_.size);
  const auto& nodes = map_.node_of_rank;
  const int root_node = nodes[static_cast<std::size_t>(root)];
  const auto first_on_node = std::find(nodes.begin(), nodes.end(), root_node) - nodes.begin();
  const int local_root = root - static_cast<int>(first_on_node);
  // On the root's node all ranks receive the data first, among them the leader; on other nodes the leader distributes
  // it.
  if (map_.node_index == root_node) {
    HVD_TRY(node_.broadcast(data, size_bytes, local_root, interrupt));
  }
  if (map_.is_leader()) {
    HVD_TRY(leaders_.broadcast(data, size_bytes, root_node, interrupt));
  }
  if (map_.node_index != root_node) {
    HVD_TRY(node_.broadcast(data, size_bytes, 0, interrupt));
  }
  return {};
}

// Ranks of a node are consecutive, and so are their parts.
CpuBackend::Parts CpuBackend::parts_of(std::span<const std::size_t> sizes) const {
  HVD_CHECK(sizes.size() == static_cast<std::size_t>(map_.size));
  Parts parts;
  parts.of_node.resize(static_cast<std::size_t>(map_.node_count));
  std::size_t total = 0;
  int previous_node = -1;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const int node = map_.node_of_rank[rank];
    Range& of_node = parts.of_node[static_cast<std::size_t>(node)];
    of_node = Range{node == previous_node ? of_node.begin : total, total + sizes[rank]};
    parts.of_rank.push_back(Range{total, total + sizes[rank]});
    total += sizes[rank];
    previous_node = node;
  }
  parts.of_local_ranks =
      std::span(parts.of_rank)
          .subspan(static_cast<std::size_t>(map_.rank - map_.local_rank), static_cast<std::size_t>(map_.local_size));
  return parts;
}

Result<void> CpuBackend::allgather(const void* input, std::span<const std::size_t> sizes, void* out,
                                   Interrupt& interrupt) {
  const Parts parts = parts_of(sizes);
  HVD_TRY(node_.allgather(input, parts.of_local_ranks, out, interrupt));
  if (map_.node_count == 1) {
    return {};
  }
  if (map_.is_leader()) {
    HVD_TRY(leaders_.allgather(out, parts.of_node, interrupt));
  }
  auto* bytes = static_cast<std::uint8_t*>(out);
  const Range& own = parts.of_node[static_cast<std::size_t>(map_.node_index)];
  HVD_TRY(node_.broadcast(bytes, own.begin, 0, interrupt));
  return node_.broadcast(bytes + own.end, parts.of_rank.back().end - own.end, 0, interrupt);
}

Result<void> CpuBackend::reducescatter(const void* input, std::span<const std::size_t> sizes, void* out, Dtype dtype,
                                       ReduceOp op, Interrupt& interrupt) {
  HVD_CHECK(op != ReduceOp::kAverage);
  const Parts parts = parts_of(sizes);
  if (map_.node_count == 1) {
    return node_.reduce_scatter(input, parts.of_local_ranks, out, dtype, op, interrupt);
  }
  // Only one copy of the data per node crosses the network: the leader has its node's sum, and receives its node's part
  // of the whole.
  const std::size_t total = parts.of_rank.back().end;
  std::uint8_t* whole = nullptr;
  if (map_.is_leader()) {
    HVD_TRY_ASSIGN(whole, staging_.reserve(total));
  }
  HVD_TRY(node_.reduce(input, whole, total / size_of(dtype), dtype, op, NodeCollectives::ResultTo::kLeader, interrupt));
  if (map_.is_leader()) {
    HVD_TRY(leaders_.reduce_scatter(whole, parts.of_node, dtype, op, interrupt));
  }
  return scatter(whole, parts.of_local_ranks, out, interrupt);
}

Result<void> CpuBackend::barrier(Interrupt& interrupt) {
  HVD_TRY(node_.barrier(interrupt));
  if (map_.node_count == 1) {
    return {};
  }
  if (map_.is_leader()) {
    HVD_TRY(leaders_.barrier(interrupt));
  }
  return node_.barrier(interrupt);
}

}  // namespace hvd
