// CpuBackend's alltoall. Within a node every rank reads the data that is for it. For each other node, the leader
// collects its ranks' data for that node, exchanges it with the other leader, and distributes what it received. So
// every byte crosses the network once, and a leader needs memory for only two nodes' exchange at a time.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/algo/alltoall_layout.h"
#include "runtime/backend/cpu_backend.h"

namespace hvd {
namespace {

std::size_t longest_of(std::span<const Range> pieces) {
  std::size_t longest = 0;
  for (const Range& piece : pieces) {
    longest = std::max(longest, piece.size());
  }
  return longest;
}

// Returns the ranges of pieces with these sizes, one after the other.
template <typename BytesOf>
std::vector<Range> side_by_side(Range ranks, const BytesOf& bytes_of) {
  std::vector<Range> pieces;
  std::size_t at = 0;
  for (std::size_t rank = ranks.begin; rank < ranks.end; ++rank) {
    const std::size_t bytes = bytes_of(rank);
    pieces.push_back(Range{at, at + bytes});
    at += bytes;
  }
  return pieces;
}

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

}  // namespace

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

}  // namespace hvd
