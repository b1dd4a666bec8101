// RingFlow is what one node sends and receives in a ring over blocks of its data, one block per node. It does all of an
// allreduce, or its first half (reduce-scatter), or its second half (allgather). Blocks move in pieces: while one piece
// waits to be reduced, the next is being transferred (RingOrder). Afterwards, or at the end of the first half, node i
// has block i reduced over all nodes in the order of the ring, which is the same on every run.
//
// The algorithm is that of Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
// (2009). Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/algo/piece_map.h"
#include "runtime/algo/schedule.h"
#include "runtime/core/dtype.h"
#include "runtime/core/scale.h"
#include "runtime/link/stream_io.h"

namespace hvd {

class RingFlow final : public Flow {
 public:
  enum class Half : std::uint8_t { kReduce, kGather, kBoth };

  // Place describes the ring: its nodes, and this one among them. It owns nothing.
  struct Place {
    std::span<const Range> blocks;  // of the data, in bytes; one for each node
    int self = 0;
    std::size_t piece_bytes = 0;
    std::uint8_t* staging = nullptr;  // piece_bytes of memory; needed except for kGather
  };
  // Sum is how elements are reduced; kGather ignores it. A block is scaled where it has been reduced, before it is sent
  // on, so that all nodes have the same bits.
  struct Sum {
    Dtype dtype = Dtype::kUint8;
    ReduceOp op = ReduceOp::kSum;
    Scale after;
  };

  // Data flows from inputs to outputs, which are the same for kGather. The map is not owned.
  RingFlow(const PieceMap& data, const Place& place, Half half, Sum sum);

  [[nodiscard]] std::uint64_t bytes_to_send() const override;
  [[nodiscard]] std::uint64_t bytes_to_receive() const override;
  std::size_t to_send(iovec* parts) override;
  void note_sent(std::size_t bytes) override { sent_ += bytes; }
  std::size_t to_receive(iovec* parts) override;
  void note_received(std::size_t bytes) override;

 private:
  [[nodiscard]] int count() const { return static_cast<int>(place_.blocks.size()); }
  [[nodiscard]] bool is_reduced(int step) const { return step + 1 < count(); }
  [[nodiscard]] Range sent_at(const RingOrder& at) const;
  [[nodiscard]] Range received_at(const RingOrder& at) const;
  [[nodiscard]] Range piece_of(int part, std::size_t piece) const;
  [[nodiscard]] static RingOrder order_of(const Place& place, Half half);
  [[nodiscard]] std::size_t block_bytes(int part) const;
  std::size_t fill(iovec* parts, Range range, bool of_inputs) const;
  void reduce(Range range, int step) const;

  // constant after construction
  const PieceMap& data_;
  Place place_;
  Sum sum_;
  int first_step_;
  int end_step_;
  // one thread at a time
  RingOrder out_;
  RingOrder in_;
  std::size_t sent_ = 0;      // bytes of out_'s piece
  std::size_t received_ = 0;  // bytes of in_'s piece
};

}  // namespace hvd
