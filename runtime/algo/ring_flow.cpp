#include "runtime/algo/ring_flow.h"

#include <algorithm>

#include "runtime/algo/reduce_kernels.h"

namespace hvd {

RingFlow::RingFlow(std::uint8_t* data, const Place& place, Half half, Sum sum)
    : data_(data),
      place_(place),
      sum_(sum),
      first_step_(half == Half::kGather ? count() - 1 : 0),
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

// A node ends the first half with the part after its own number: that is its block.
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

// Blocks may differ in size: then some have no such piece, here as on the other side.
Bytes RingFlow::to_send() {
  for (; !out_.is_over(); out_.advance(), sent_ = 0) {
    const Range range = sent_at(out_);
    if (sent_ == range.size()) {
      continue;
    }
    const bool is_there = out_.step() == first_step_ || in_.is_past(out_.piece(), out_.step() - 1);
    return is_there ? Bytes(data_ + range.begin + sent_, range.size() - sent_) : Bytes();
  }
  return {};
}

MutableBytes RingFlow::to_receive() {
  for (; !in_.is_over(); in_.advance()) {
    const Range range = received_at(in_);
    if (range.size() != 0) {
      std::uint8_t* to = is_reduced(in_.step()) ? place_.staging : data_ + range.begin;
      return MutableBytes(to + received_, range.size() - received_);
    }
  }
  return {};
}

void RingFlow::note_received(std::size_t bytes) {
  received_ += bytes;
  const Range range = received_at(in_);
  if (received_ < range.size()) {
    return;
  }
  if (is_reduced(in_.step())) {
    reduce_into(data_ + range.begin, place_.staging, range.size() / size_of(sum_.dtype), sum_.dtype, sum_.op);
  }
  in_.advance();
  received_ = 0;
}

}  // namespace hvd
