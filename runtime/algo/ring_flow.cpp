#include "runtime/algo/ring_flow.h"

#include <algorithm>
#include <array>

#include "runtime/algo/reduce_kernels.h"

namespace hvd {

RingFlow::RingFlow(const PieceMap& data, const Place& place, Half half, Sum sum)
    : data_(data),
      place_(place),
      sum_(sum),
      first_step_(half == Half::kGather ? count() - 1 : 0),
      end_step_(half == Half::kReduce ? count() - 1 : 2 * (count() - 1)),
      out_(order_of(place, half)),
      in_(out_) {}

RingOrder RingFlow::order_of(const Place& place, Half half) {
  const auto nodes = static_cast<int>(place.blocks.size());
  std::size_t pieces = 0;
  for (const Range& block : place.blocks) {
    pieces = std::max(pieces, chunks_for(block.size(), place.piece_bytes));
  }
  return RingOrder(pieces, half == Half::kGather ? nodes - 1 : 0, half == Half::kReduce ? nodes - 1 : 2 * (nodes - 1));
}

// Each step moves one whole part in each direction.
std::uint64_t RingFlow::bytes_to_send() const {
  std::uint64_t all = 0;
  for (int step = first_step_; step < end_step_; ++step) {
    all += block_bytes(ring_send_part(place_.self, count(), step));
  }
  return all;
}

std::uint64_t RingFlow::bytes_to_receive() const {
  std::uint64_t all = 0;
  for (int step = first_step_; step < end_step_; ++step) {
    all += block_bytes(ring_recv_part(place_.self, count(), step));
  }
  return all;
}

std::size_t RingFlow::block_bytes(int part) const {
  return place_.blocks[static_cast<std::size_t>(ring_previous(part, count()))].size();
}

// A node ends the first half with the part after its own number, and that part is its block.
Range RingFlow::piece_of(int part, std::size_t piece) const {
  const Range& block = place_.blocks[static_cast<std::size_t>(ring_previous(part, count()))];
  const Range within = chunk_of(block.size(), place_.piece_bytes, piece);
  return Range{block.begin + within.begin, block.begin + within.end};
}

Range RingFlow::sent_at(const RingOrder& at) const {
  return piece_of(ring_send_part(place_.self, count(), at.step()), at.piece());
}

Range RingFlow::received_at(const RingOrder& at) const {
  return piece_of(ring_recv_part(place_.self, count(), at.step()), at.piece());
}

// Blocks may differ in size; a block without such a piece is skipped here, and on the other side too.
std::size_t RingFlow::to_send(iovec* parts) {
  for (; !out_.is_over(); out_.advance(), sent_ = 0) {
    const Range range = sent_at(out_);
    if (sent_ == range.size()) {
      continue;
    }
    const bool is_first = out_.step() == first_step_;
    if (!is_first && !in_.is_past(out_.piece(), out_.step() - 1)) {
      return 0;
    }
    return fill(parts, Range{range.begin + sent_, range.end}, is_first && is_reduced(first_step_));
  }
  return 0;
}

std::size_t RingFlow::to_receive(iovec* parts) {
  for (; !in_.is_over(); in_.advance()) {
    const Range range = received_at(in_);
    if (range.size() == 0) {
      continue;
    }
    if (is_reduced(in_.step())) {
      *parts = iovec{place_.staging + received_, range.size() - received_};
      return 1;
    }
    return fill(parts, Range{range.begin + received_, range.end}, false);
  }
  return 0;
}

// Fills `parts` with addresses of inputs or of outputs.
std::size_t RingFlow::fill(iovec* parts, Range range, bool of_inputs) const {
  std::size_t count = 0;
  data_.visit(range, [&](const std::uint8_t* input, std::uint8_t* output, std::size_t bytes) {
    parts[count++] = iovec{of_inputs ? const_cast<std::uint8_t*>(input) : output, bytes};
    return count < kMostParts;
  });
  return count;
}

void RingFlow::note_received(std::size_t bytes) {
  received_ += bytes;
  const Range range = received_at(in_);
  if (received_ < range.size()) {
    return;
  }
  if (is_reduced(in_.step())) {
    reduce(range, in_.step());
  }
  in_.advance();
  received_ = 0;
}

// Each part is reduced here in one step only, so this node's operand is still its input.
void RingFlow::reduce(Range range, int step) const {
  const bool is_last = step + 2 == count();
  const std::uint8_t* received = place_.staging;
  data_.visit(range, [&](const std::uint8_t* input, std::uint8_t* output, std::size_t bytes) {
    const std::array<const std::uint8_t*, 2> operands{input, received};
    ReduceTurn turn;
    turn.operands = operands;
    turn.result = output;
    turn.size_bytes = bytes;
    turn.scale = is_last ? sum_.after : Scale();
    reduce_turn(turn, sum_.dtype, sum_.op);
    received += bytes;
    return true;
  });
}

}  // namespace hvd
