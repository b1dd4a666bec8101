#include "runtime/algo/leader_collectives.h"

#include <algorithm>

#include "runtime/algo/reduce_kernels.h"
#include "runtime/base/bytes.h"

namespace hvd {

LeaderCollectives::LeaderCollectives(std::vector<StreamPeer> peers, int node_index, const Tuning& tuning)
    : peers_(std::move(peers)), self_(node_index), piece_bytes_(tuning.wire_bytes) {
  if (count() > 1) {
    staging_ = std::make_unique<std::uint8_t[]>(piece_bytes_);
  }
}

Range LeaderCollectives::piece_of(const Range& part, std::size_t piece) const {
  const std::size_t begin = std::min(part.end, part.begin + piece * piece_bytes_);
  return Range{begin, std::min(part.end, begin + piece_bytes_)};
}

std::size_t LeaderCollectives::pieces_of(const Range& part) const {
  return (part.size() + piece_bytes_ - 1) / piece_bytes_;
}

Result<void> LeaderCollectives::reduce_scatter(void* data, std::span<const Range> blocks, Dtype dtype, ReduceOp op,
                                               Interrupt& interrupt) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  const std::size_t element = size_of(dtype);
  // The ring ends with the part after its own number complete on each node.
  const auto part = [&](int number) -> const Range& {
    return blocks[static_cast<std::size_t>(ring_previous(number, count()))];
  };
  for (int step = 0; step + 1 < count(); ++step) {
    const Range& send = part(ring_send_part(self_, count(), step));
    const Range& recv = part(ring_recv_part(self_, count(), step));
    const std::size_t pieces = std::max(pieces_of(send), pieces_of(recv));
    for (std::size_t i = 0; i < pieces; ++i) {
      const Range out = piece_of(send, i);
      const Range in = piece_of(recv, i);
      HVD_TRY(send_and_recv(next(), Bytes(bytes + out.begin, out.size()), previous(),
                            MutableBytes(staging_.get(), in.size()), interrupt));
      reduce_into(bytes + in.begin, staging_.get(), in.size() / element, dtype, op);
    }
  }
  return {};
}

Result<void> LeaderCollectives::allreduce(void* data, std::size_t element_count, Dtype dtype, ReduceOp op,
                                          Interrupt& interrupt) {
  const auto n = static_cast<std::size_t>(count());
  const std::size_t element = size_of(dtype);
  blocks_.clear();
  for (std::size_t node = 0; node < n; ++node) {
    const Range elements = split(element_count, n, node);
    blocks_.push_back(Range{elements.begin * element, elements.end * element});
  }
  HVD_TRY(reduce_scatter(data, blocks_, dtype, op, interrupt));
  return allgather(data, blocks_, interrupt);
}

Result<void> LeaderCollectives::allgather(void* data, std::span<const Range> blocks, Interrupt& interrupt) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  for (int step = 0; step + 1 < count(); ++step) {
    const Range& send = blocks[static_cast<std::size_t>(ring_send_part(self_, count(), step))];
    const Range& recv = blocks[static_cast<std::size_t>(ring_recv_part(self_, count(), step))];
    HVD_TRY(send_and_recv(next(), Bytes(bytes + send.begin, send.size()), previous(),
                          MutableBytes(bytes + recv.begin, recv.size()), interrupt));
  }
  return {};
}

Result<void> LeaderCollectives::broadcast(void* data, std::size_t size_bytes, int root_node, Interrupt& interrupt) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  const bool is_first = self_ == root_node;
  const bool is_last = ring_next(self_, count()) == root_node;
  const Range all{0, size_bytes};
  // In step i piece i comes in and piece i-1 goes on.
  for (std::size_t i = 0; count() > 1 && i <= pieces_of(all); ++i) {
    const Range in = is_first ? Range{} : piece_of(all, i);
    const Range out = is_last || i == 0 ? Range{} : piece_of(all, i - 1);
    HVD_TRY(send_and_recv(next(), Bytes(bytes + out.begin, out.size()), previous(),
                          MutableBytes(bytes + in.begin, in.size()), interrupt));
  }
  return {};
}

Result<void> LeaderCollectives::barrier(Interrupt& interrupt) {
  // Dissemination: after the round of distance d everybody has heard, directly or not, of the 2d-1 nodes before it.
  for (int distance = 1; distance < count(); distance *= 2) {
    const std::uint8_t token = 'B';
    std::uint8_t received = 0;
    HVD_TRY(send_and_recv(peer(ring_next(self_, count(), distance)), Bytes(&token, 1),
                          peer(ring_previous(self_, count(), distance)), MutableBytes(&received, 1), interrupt));
    if (received != token) {
      return Error(Code::kProtocol, "the ranks are not at the same barrier");
    }
  }
  return {};
}

}  // namespace hvd
