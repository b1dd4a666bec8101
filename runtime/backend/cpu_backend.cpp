#include "runtime/backend/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/algo/adasum_parties.h"
#include "runtime/algo/alltoall_layout.h"
#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

std::vector<StreamPeer> leader_peers(Mesh& mesh) {
  const RankMap& map = mesh.map();
  std::vector<StreamPeer> peers;
  for (int node = 0; node < map.node_count; ++node) {
    HostLink::Ends ends = mesh.ends_of(node);
    peers.push_back(StreamPeer{mesh.data_fd(node), std::move(ends.there), &mesh.data_counts(node), std::move(ends.here),
                               mesh.data_seal(node)});
  }
  return peers;
}

constexpr std::size_t kMaxSegments = 16;

// Sorts from the order of the senders, in which data is collected, to the order of the receivers, in which it is
// distributed.
void sort_by_receiver(const std::uint8_t* by_sender, std::uint8_t* by_receiver, const AlltoallLayout& layout,
                      Range senders, Range receivers) {
  std::vector<std::size_t> at;  // the position in each sender's data
  std::size_t before = 0;
  for (std::size_t from = senders.begin; from < senders.end; ++from) {
    at.push_back(before);
    before += layout.sent(from, receivers).size();
  }
  for (std::size_t to = receivers.begin; to < receivers.end; ++to) {
    for (std::size_t from = senders.begin; from < senders.end; ++from) {
      const std::size_t bytes = layout.bytes(from, to);
      if (bytes > 0) {
        std::memcpy(by_receiver, by_sender + at[from - senders.begin], bytes);
      }
      by_receiver += bytes;
      at[from - senders.begin] += bytes;
    }
  }
}

class NodeParties final : public AdasumParties {
 public:
  NodeParties(NodeCollectives& node, const RankMap& map, Interrupt& interrupt)
      : node_(node), index_(static_cast<std::size_t>(map.local_rank)), interrupt_(interrupt) {}

  [[nodiscard]] std::size_t index() const override { return index_; }
  Result<void> exchange(const std::uint8_t* packed, const ShareLayout& layout, std::uint8_t* received) override {
    const std::size_t own = layout.of_parties()[index_].size();
    std::vector<Range> recv;
    for (std::size_t party = 0; party < layout.parties(); ++party) {
      recv.push_back(Range{party * own, (party + 1) * own});
    }
    return node_.alltoall(packed, layout.of_parties(), received, recv, layout.longest_share(), interrupt_);
  }
  Result<void> sum(std::span<double> values) override {
    return node_.reduce(values.data(), values.data(), values.size(), Dtype::kFloat64, ReduceOp::kSum,
                        NodeCollectives::ResultTo::kAll, interrupt_);
  }
  Result<void> gather(std::uint8_t* packed, const ShareLayout& layout) override {
    return node_.allgather(packed + layout.of_parties()[index_].begin, layout.of_parties(), packed, interrupt_);
  }

 private:
  NodeCollectives& node_;
  const std::size_t index_;
  Interrupt& interrupt_;
};

class LeaderParties final : public AdasumParties {
 public:
  LeaderParties(LeaderCollectives& leaders, const RankMap& map, Interrupt& interrupt)
      : leaders_(leaders), count_(map.node_count), index_(map.node_index), interrupt_(interrupt) {}

  [[nodiscard]] std::size_t index() const override { return static_cast<std::size_t>(index_); }
  Result<void> exchange(const std::uint8_t* packed, const ShareLayout& layout, std::uint8_t* received) override {
    const Range& own = layout.of_parties()[index()];
    if (own.size() != 0) {
      std::memcpy(received + index() * own.size(), packed + own.begin, own.size());
    }
    for (int distance = 1; distance < count_; ++distance) {
      const int to = ring_next(index_, count_, distance);
      const int from = ring_previous(index_, count_, distance);
      const Range& theirs = layout.of_parties()[static_cast<std::size_t>(to)];
      HVD_TRY(leaders_.exchange(to, Bytes(packed + theirs.begin, theirs.size()), from,
                                MutableBytes(received + static_cast<std::size_t>(from) * own.size(), own.size()),
                                interrupt_));
    }
    return {};
  }
  Result<void> sum(std::span<double> values) override {
    return sum_in_order(
        index(), static_cast<std::size_t>(count_), values,
        [this](double* data, std::span<const Range> blocks) { return leaders_.allgather(data, blocks, interrupt_); });
  }
  Result<void> gather(std::uint8_t* packed, const ShareLayout& layout) override {
    return leaders_.allgather(packed, layout.of_parties(), interrupt_);
  }

 private:
  LeaderCollectives& leaders_;
  const int count_;
  const int index_;
  Interrupt& interrupt_;
};

}  // namespace

CpuBackend::CpuBackend(Mesh& mesh, const Tuning& tuning)
    : map_(mesh.map()),
      segment_bytes_(tuning.segment_bytes),
      node_(mesh.shm().get(), tuning),
      leaders_(leader_peers(mesh), map_.node_index, looks_beside(mesh.shm().get()), tuning) {}

void CpuBackend::trace_to(StageSink* sink) {
  sink_ = map_.node_count > 1 ? sink : nullptr;
  wire_.trace_to(sink_);
}

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
    const StageSpan span(sink_, Stage::kWire, size_bytes);
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
    const StageSpan span(sink_, Stage::kWire, parts.of_node.back().end);
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
    const StageSpan span(sink_, Stage::kWire, parts.of_node.back().end);
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
    const StageSpan span(sink_, Stage::kWire, 0);
    HVD_TRY(leaders_.barrier(interrupt));
  }
  return node_.barrier(interrupt);
}

// Allreduce, for one node, for nodes of one rank each, and for the general case.

Result<void> CpuBackend::allreduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, Interrupt& interrupt) {
  if (map_.node_count == 1) {
    return node_.reduce(data, data, count, dtype, op, NodeCollectives::ResultTo::kAll, interrupt);
  }
  const Piece all{data, data, count * size_of(dtype)};
  return allreduce_pieces(std::span(&all, 1), dtype, op, {}, interrupt);
}

Result<void> CpuBackend::allreduce_pieces(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                          Interrupt& interrupt) {
  HVD_CHECK(op != ReduceOp::kAverage);
  if (map_.node_count == 1) {
    return node_.reduce_pieces(pieces, dtype, op, scales, interrupt);
  }
  if (map_.size == map_.node_count) {
    const StageSpan span(sink_, Stage::kWire, bytes_of(pieces));
    return leaders_.allreduce(scaled(pieces, dtype, scales.before), dtype, op, scales.after, interrupt);
  }
  try {
    auto done = run_segments(pieces, dtype, op, scales, interrupt);
    if (!done.ok()) {
      wire_.stop();  // the memory belongs to the caller again
    }
    return done;
  } catch (...) {  // no memory, or no thread
    wire_.stop();
    throw;
  }
}

Result<void> CpuBackend::allreduce_shared(std::span<const SharedPiece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                          Interrupt& interrupt) {
  HVD_CHECK(takes_shared() && op != ReduceOp::kAverage);
  return node_.reduce_shared(pieces, dtype, op, scales, interrupt);
}

// Returns the same pieces, or pieces whose outputs hold the scaled inputs.
std::span<const Piece> CpuBackend::scaled(std::span<const Piece> pieces, Dtype dtype, Scale scale) {
  if (scale.is_one()) {
    return pieces;
  }
  scaled_.assign(pieces.begin(), pieces.end());
  for (Piece& piece : scaled_) {
    if (piece.output != piece.input) {
      copy_bytes(static_cast<std::uint8_t*>(piece.output), static_cast<const std::uint8_t*>(piece.input),
                 piece.size_bytes);
    }
    scale_in_place(piece.output, piece.size_bytes / size_of(dtype), dtype, scale);
    piece.input = piece.output;
  }
  return scaled_;
}

// Works in segments: while the leaders' links move one, the node's ranks pack and reduce the next, and then take the
// previous one. The number of segments is the same on all nodes, whatever their ranks.
Result<void> CpuBackend::run_segments(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scales scales,
                                      Interrupt& interrupt) {
  const std::size_t element = size_of(dtype);
  const std::size_t count = bytes_of(pieces) / element;
  const std::size_t segments = std::clamp<std::size_t>(count * element / segment_bytes_, 1, kMaxSegments);
  const auto bytes_at = [&](std::size_t i) {
    const Range elements = split(count, segments, i);
    return Range{elements.begin * element, elements.end * element};
  };
  // A single piece is worked on in place; several pieces use staging memory for two segments at a time.
  const bool is_packed = pieces.size() != 1;
  const bool is_in_place = !is_packed && pieces.front().input == pieces.front().output;
  const std::size_t largest = bytes_at(0).size();
  std::uint8_t* staging = nullptr;
  if (is_packed) {
    HVD_TRY_ASSIGN(staging, staging_.reserve(std::min<std::size_t>(segments, 2) * largest));
  }
  const auto place_of = [&](std::size_t i) {
    return is_packed ? staging + i % 2 * largest
                     : static_cast<std::uint8_t*>(pieces.front().output) + bytes_at(i).begin;
  };
  PieceCursor inputs(pieces);
  PieceCursor outputs(pieces);
  for (std::size_t i = 0; i <= segments; ++i) {
    if (i < segments) {
      const std::size_t bytes = bytes_at(i).size();
      std::uint8_t* to = place_of(i);
      {
        const StageSpan span(sink_, Stage::kCollect, bytes);
        if (!is_in_place) {
          inputs.copy_inputs(to, bytes);
        }
        scale_in_place(to, bytes / element, dtype, scales.before);
        HVD_TRY(node_.reduce(to, to, bytes / element, dtype, op, NodeCollectives::ResultTo::kLeader, interrupt));
      }
      if (map_.is_leader() && segments == 1) {
        const Piece all{to, to, bytes};
        const StageSpan span(sink_, Stage::kWire, bytes);
        HVD_TRY(leaders_.allreduce(std::span(&all, 1), dtype, op, scales.after, interrupt));
      } else if (map_.is_leader()) {
        wire_.order({to, to, bytes}, dtype, op, scales.after);
      }
    }
    if (i > 0) {
      if (map_.is_leader() && segments > 1) {
        HVD_TRY(wire_.wait(interrupt));
      }
      const std::size_t bytes = bytes_at(i - 1).size();
      const StageSpan span(sink_, Stage::kShare, bytes);
      HVD_TRY(node_.broadcast(place_of(i - 1), bytes, 0, interrupt));
      if (is_packed) {
        outputs.copy_to_outputs(place_of(i - 1), bytes);
      }
    }
  }
  return {};
}

// Alltoall. Within a node every rank reads the data that is for it. For each other node, the leader
// collects its ranks' data for that node, exchanges it with the other leader, and distributes what it received. So
// every byte crosses the network once, and a leader needs memory for only two nodes' exchange at a time.

Range CpuBackend::ranks_of_node(int node) const {
  const auto& nodes = map_.node_of_rank;
  const auto first = std::find(nodes.begin(), nodes.end(), node);
  const auto last = std::find_if(first, nodes.end(), [node](int other) { return other != node; });
  return Range{static_cast<std::size_t>(first - nodes.begin()), static_cast<std::size_t>(last - nodes.begin())};
}

Result<void> CpuBackend::alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                                  Interrupt& interrupt) {
  HVD_CHECK(sizes.size() == static_cast<std::size_t>(map_.size) * static_cast<std::size_t>(map_.size));
  const AlltoallLayout layout(sizes, map_.size);
  HVD_TRY(exchange_within_node(input, layout, out, interrupt));
  for (int distance = 1; distance < map_.node_count; ++distance) {
    HVD_TRY(exchange_with_nodes(input, layout, out, distance, interrupt));
  }
  return {};
}

Result<void> CpuBackend::exchange_within_node(const void* input, const AlltoallLayout& layout, void* out,
                                              Interrupt& interrupt) {
  const Range local = ranks_of_node(map_.node_index);
  const auto self = static_cast<std::size_t>(map_.rank);
  std::vector<Range> send;
  std::vector<Range> recv;
  std::size_t longest = 0;
  for (std::size_t rank = local.begin; rank < local.end; ++rank) {
    send.push_back(layout.sent(self, Range{rank, rank + 1}));
    recv.push_back(layout.received(Range{rank, rank + 1}, self));
    for (std::size_t other = local.begin; other < local.end; ++other) {
      longest = rank == other ? longest : std::max(longest, layout.bytes(rank, other));
    }
  }
  return node_.alltoall(input, send, out, recv, longest, interrupt);
}

// Sends to the node that is `distance` ahead in the ring, and receives from the one that is as far behind.
Result<void> CpuBackend::exchange_with_nodes(const void* input, const AlltoallLayout& layout, void* out, int distance,
                                             Interrupt& interrupt) {
  const int to_node = ring_next(map_.node_index, map_.node_count, distance);
  const int from_node = ring_previous(map_.node_index, map_.node_count, distance);
  const Range local = ranks_of_node(map_.node_index);
  const Range to = ranks_of_node(to_node);
  const Range from = ranks_of_node(from_node);
  const auto self = static_cast<std::size_t>(map_.rank);
  const auto* own_input = static_cast<const std::uint8_t*>(input) + layout.sent(self, to).begin;
  auto* own_output = static_cast<std::uint8_t*>(out) + layout.received(from, self).begin;
  const std::size_t out_bytes = layout.total(local, to);
  const std::size_t in_bytes = layout.total(from, local);
  if (local.size() == 1) {
    const StageSpan span(sink_, Stage::kWire, out_bytes + in_bytes);
    return leaders_.exchange(to_node, Bytes(own_input, out_bytes), from_node, MutableBytes(own_output, in_bytes),
                             interrupt);
  }
  std::uint8_t* staging = nullptr;
  if (map_.is_leader()) {
    HVD_TRY_ASSIGN(staging, staging_.reserve(2 * out_bytes + in_bytes));
  }
  const auto collected = side_by_side(local, [&](std::size_t rank) { return layout.sent(rank, to).size(); });
  HVD_TRY(collect(own_input, collected, staging, interrupt));
  std::uint8_t* arrived = staging;
  if (map_.is_leader()) {
    std::uint8_t* by_receiver = staging + out_bytes;
    sort_by_receiver(staging, by_receiver, layout, local, to);
    arrived = by_receiver + out_bytes;
    const StageSpan span(sink_, Stage::kWire, out_bytes + in_bytes);
    HVD_TRY(leaders_.exchange(to_node, Bytes(by_receiver, out_bytes), from_node, MutableBytes(arrived, in_bytes),
                              interrupt));
  }
  const auto handed_out = side_by_side(local, [&](std::size_t rank) { return layout.received(from, rank).size(); });
  return scatter(arrived, handed_out, own_output, interrupt);
}

Result<void> CpuBackend::collect(const void* data, std::span<const Range> pieces, void* to, Interrupt& interrupt) {
  const std::vector<Range> nothing(pieces.size());
  std::vector<Range> to_leader(pieces.size());
  to_leader.front() = Range{0, pieces[static_cast<std::size_t>(map_.local_rank)].size()};
  return node_.alltoall(data, to_leader, to, map_.is_leader() ? pieces : nothing, longest_of(pieces), interrupt);
}

Result<void> CpuBackend::scatter(const void* data, std::span<const Range> pieces, void* out, Interrupt& interrupt) {
  const std::vector<Range> nothing(pieces.size());
  std::vector<Range> from_leader(pieces.size());
  from_leader.front() = Range{0, pieces[static_cast<std::size_t>(map_.local_rank)].size()};
  return node_.alltoall(data, map_.is_leader() ? pieces : nothing, out, from_leader, longest_of(pieces), interrupt);
}

// Adasum: first among the ranks of a node, then among the leaders of the nodes. On each level every party
// receives its share of all vectors and computes its share's part of the inner products. With the sums of these it
// computes its share of the result. So a level moves as much data as a reducescatter and an allgather.

Result<void> CpuBackend::adasum(std::span<const MutableBytes> tensors, Dtype dtype, std::span<const int> averaged,
                                Interrupt& interrupt) {
  if (map_.local_size > 1) {
    const std::vector<int> one_group(averaged.empty() ? 0 : static_cast<std::size_t>(map_.local_size), 0);
    const ShareLayout layout(tensors, dtype, static_cast<std::size_t>(map_.local_size));
    HVD_TRY_ASSIGN(std::uint8_t* packed, staging_.reserve(adasum_room(layout)));
    layout.pack(tensors, packed);
    NodeParties ranks(node_, map_, interrupt);
    HVD_TRY(combine_adasum(ranks, layout, dtype, one_group, packed));
    layout.unpack(packed, tensors);
  }
  if (map_.node_count > 1) {
    const ShareLayout layout(tensors, dtype, static_cast<std::size_t>(map_.node_count));
    HVD_TRY_ASSIGN(std::uint8_t* packed, staging_.reserve(adasum_room(layout)));
    if (map_.is_leader()) {
      layout.pack(tensors, packed);
      LeaderParties nodes(leaders_, map_, interrupt);
      HVD_TRY(combine_adasum(nodes, layout, dtype, {}, packed));
    }
    HVD_TRY(node_.broadcast(packed, layout.total_bytes(), 0, interrupt));
    layout.unpack(packed, tensors);
  }
  return {};
}

}  // namespace hvd
