#include "runtime/algo/leader_collectives.h"

#include <algorithm>
#include <bit>

#include "runtime/algo/piece_cursor.h"
#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/bytes.h"
#include "runtime/base/check.h"

namespace hvd {
namespace {

// Larger transfers take so long that polling for their end only keeps a core from other ranks, since some data is
// always in transit. Measured: polling makes a ring no faster.
constexpr std::size_t kMostLookedFor = 512U << 10U;

std::size_t end_of(std::span<const Range> blocks) {
  std::size_t end = 0;
  for (const Range& block : blocks) {
    end = std::max(end, block.end);
  }
  return end;
}

// ChainFlow sends data along a chain: what has been received is passed on at once.
class ChainFlow final : public Flow {
 public:
  ChainFlow(std::uint8_t* data, std::size_t size_bytes, bool is_first, bool is_last)
      : data_(data), received_(is_first ? size_bytes : 0), sent_(is_last ? size_bytes : 0), size_bytes_(size_bytes) {}
  [[nodiscard]] std::uint64_t bytes_to_send() const override { return size_bytes_ - sent_; }
  [[nodiscard]] std::uint64_t bytes_to_receive() const override { return size_bytes_ - received_; }
  std::size_t to_send(iovec* parts) override { return fill(parts, sent_, received_); }
  void note_sent(std::size_t bytes) override { sent_ += bytes; }
  std::size_t to_receive(iovec* parts) override { return fill(parts, received_, size_bytes_); }
  void note_received(std::size_t bytes) override { received_ += bytes; }

 private:
  std::size_t fill(iovec* parts, std::size_t begin, std::size_t end) const {
    *parts = iovec{data_ + begin, end - std::min(begin, end)};
    return begin < end ? 1 : 0;
  }

  std::uint8_t* data_;
  std::size_t received_;
  std::size_t sent_;
  std::size_t size_bytes_;
};

}  // namespace

LeaderCollectives::LeaderCollectives(std::vector<StreamPeer> peers, int node_index, Looks looks, const Tuning& tuning)
    : peers_(std::move(peers)),
      self_(node_index),
      piece_bytes_(tuning.wire_bytes),
      pairs_bytes_(tuning.pairs_bytes),
      looks_(looks) {
  if (count() > 1) {
    staging_ = std::make_unique_for_overwrite<std::uint8_t[]>(std::max(piece_bytes_, pairs_bytes_));
    packed_ = std::make_unique_for_overwrite<std::uint8_t[]>(pairs_bytes_);
  }
}

Result<void> LeaderCollectives::run_ring(std::span<const Piece> pieces, std::span<const Range> blocks,
                                         RingFlow::Half half, RingFlow::Sum sum, Interrupt& interrupt) {
  if (count() == 1) {
    return {};
  }
  map_.set(pieces);
  RingFlow flow(map_, {blocks, self_, piece_bytes_, staging_.get()}, half, sum);
  return move(next(), previous(), flow, no_looks_, interrupt);
}

Result<void> LeaderCollectives::reduce_scatter(void* data, std::span<const Range> blocks, Dtype dtype, ReduceOp op,
                                               Interrupt& interrupt) {
  const Piece all{data, data, end_of(blocks)};
  return run_ring(std::span(&all, 1), blocks, RingFlow::Half::kReduce, {dtype, op, Scale()}, interrupt);
}

Result<void> LeaderCollectives::allgather(void* data, std::span<const Range> blocks, Interrupt& interrupt) {
  const Piece all{data, data, end_of(blocks)};
  return run_ring(std::span(&all, 1), blocks, RingFlow::Half::kGather, {}, interrupt);
}

Result<void> LeaderCollectives::allreduce(std::span<const Piece> pieces, Dtype dtype, ReduceOp op, Scale after,
                                          Interrupt& interrupt) {
  HVD_CHECK(count() > 1);
  const std::size_t size_bytes = bytes_of(pieces);
  if (size_bytes <= pairs_bytes_) {
    return allreduce_in_pairs(pieces, size_bytes, dtype, op, after, interrupt);
  }
  const auto n = static_cast<std::size_t>(count());
  const std::size_t element = size_of(dtype);
  blocks_.clear();
  for (std::size_t node = 0; node < n; ++node) {
    const Range elements = split(size_bytes / element, n, node);
    blocks_.push_back(Range{elements.begin * element, elements.end * element});
  }
  return run_ring(pieces, blocks_, RingFlow::Half::kBoth, {dtype, op, after}, interrupt);
}

Result<void> LeaderCollectives::allreduce_in_pairs(std::span<const Piece> pieces, std::size_t size_bytes, Dtype dtype,
                                                   ReduceOp op, Scale after, Interrupt& interrupt) {
  const bool is_one = pieces.size() == 1;
  std::uint8_t* data = is_one ? static_cast<std::uint8_t*>(pieces.front().output) : packed_.get();
  if (!is_one || pieces.front().input != pieces.front().output) {
    PieceCursor(pieces).copy_inputs(data, size_bytes);
  }
  const std::size_t elements = size_bytes / size_of(dtype);
  HVD_TRY(run_pairs(data, elements, dtype, op, interrupt));
  scale_in_place(data, elements, dtype, after);
  if (!is_one) {
    PieceCursor(pieces).copy_to_outputs(data, size_bytes);
  }
  return {};
}

Result<void> LeaderCollectives::exchange(int to_node, Bytes out, int from_node, MutableBytes in, Interrupt& interrupt) {
  Looks& looks = out.size() + in.size() <= kMostLookedFor ? looks_ : no_looks_;
  return send_and_recv(peer(to_node), out, peer(from_node), in, looks, interrupt);
}

// Recursive doubling: after the round of distance d each node has the sum of the 2d nodes of its group. If the number
// of nodes is not a power of two, the nodes beyond it first give their data to a partner, and receive the result from
// it. Both nodes of a pair reduce the same two operands in the same order, so all end with the same bits. Only the bits
// of a NaN may differ, because processors of different kinds may take them from different operands. (Thakur,
// Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.)
Result<void> LeaderCollectives::run_pairs(std::uint8_t* data, std::size_t element_count, Dtype dtype, ReduceOp op,
                                          Interrupt& interrupt) {
  const std::size_t bytes = element_count * size_of(dtype);
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(count())));
  const Bytes own(data, bytes);
  const MutableBytes result(data, bytes);
  const MutableBytes theirs(staging_.get(), bytes);
  if (self_ >= paired) {
    const int partner = self_ - paired;
    HVD_TRY(exchange(partner, own, partner, {}, interrupt));
    return exchange(partner, {}, partner, result, interrupt);
  }
  const int beyond = self_ + paired;
  if (beyond < count()) {
    HVD_TRY(exchange(beyond, {}, beyond, theirs, interrupt));
    reduce_into(data, staging_.get(), element_count, dtype, op);
  }
  for (int distance = 1; distance < paired; distance *= 2) {
    const bool is_lower = self_ / distance % 2 == 0;
    const int partner = is_lower ? self_ + distance : self_ - distance;
    HVD_TRY(exchange(partner, own, partner, theirs, interrupt));
    reduce_two(data, is_lower ? data : staging_.get(), is_lower ? staging_.get() : data, element_count, dtype, op);
  }
  return beyond < count() ? exchange(beyond, own, beyond, {}, interrupt) : Result<void>();
}

Result<void> LeaderCollectives::broadcast(void* data, std::size_t size_bytes, int root_node, Interrupt& interrupt) {
  if (count() == 1 || size_bytes == 0) {
    return {};
  }
  ChainFlow flow(static_cast<std::uint8_t*>(data), size_bytes, self_ == root_node,
                 ring_next(self_, count()) == root_node);
  return move(next(), previous(), flow, no_looks_, interrupt);
}

Result<void> LeaderCollectives::barrier(Interrupt& interrupt) {
  // Dissemination: after the round of distance d each node has heard, directly or not, from the 2d-1 nodes before it.
  for (int distance = 1; distance < count(); distance *= 2) {
    const std::uint8_t token = 'B';
    std::uint8_t received = 0;
    HVD_TRY(exchange(ring_next(self_, count(), distance), Bytes(&token, 1), ring_previous(self_, count(), distance),
                     MutableBytes(&received, 1), interrupt));
    if (received != token) {
      return Error(Code::kProtocol, "the ranks are not at the same barrier");
    }
  }
  return {};
}

}  // namespace hvd
