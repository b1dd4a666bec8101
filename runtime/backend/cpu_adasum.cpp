// CpuBackend's Adasum: first among the ranks of a node, then among the leaders of the nodes. On each level every party
// receives its share of all vectors and computes its share's part of the inner products. With the sums of these it
// computes its share of the result. So a level moves as much data as a reducescatter and an allgather.
#include <cstring>

#include "runtime/algo/adasum_parties.h"
#include "runtime/backend/cpu_backend.h"

namespace hvd {
namespace {

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

Result<void> CpuBackend::adasum(std::span<const MutableBytes> tensors, Dtype dtype, Interrupt& interrupt) {
  if (map_.local_size > 1) {
    const ShareLayout layout(tensors, dtype, static_cast<std::size_t>(map_.local_size));
    HVD_TRY_ASSIGN(std::uint8_t* packed, staging_.reserve(adasum_room(layout)));
    layout.pack(tensors, packed);
    NodeParties ranks(node_, map_, interrupt);
    HVD_TRY(combine_adasum(ranks, layout, dtype, packed));
    layout.unpack(packed, tensors);
  }
  if (map_.node_count > 1) {
    const ShareLayout layout(tensors, dtype, static_cast<std::size_t>(map_.node_count));
    HVD_TRY_ASSIGN(std::uint8_t* packed, staging_.reserve(adasum_room(layout)));
    if (map_.is_leader()) {
      layout.pack(tensors, packed);
      LeaderParties nodes(leaders_, map_, interrupt);
      HVD_TRY(combine_adasum(nodes, layout, dtype, packed));
    }
    HVD_TRY(node_.broadcast(packed, layout.total_bytes(), 0, interrupt));
    layout.unpack(packed, tensors);
  }
  return {};
}

}  // namespace hvd
