// Schedule is the arithmetic of collectives: (rank, size, step) -> range and peer. It is apart from the algorithms so
// that tests check it without any link. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace hvd {

// Range is the units [begin, end) of a larger whole.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

inline std::size_t longest_of(std::span<const Range> pieces) {
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

// Returns part `part` of `parts` of `total` units, in order and without gaps. Every part is a multiple of `grain`
// units, except the last that is not empty; parts differ by one grain at most.
constexpr Range split(std::size_t total, std::size_t parts, std::size_t part, std::size_t grain = 1) {
  const std::size_t grains = (total + grain - 1) / grain;
  const std::size_t each = grains / parts;
  const std::size_t longer = grains % parts;  // the first parts have one grain more
  const auto begin_of = [&](std::size_t p) {
    const std::size_t at = (p * each + (p < longer ? p : longer)) * grain;
    return at < total ? at : total;
  };
  return Range{begin_of(part), begin_of(part + 1)};
}

// Divides size_bytes into chunks of chunk_bytes: how many there are, and which bytes are in each.
constexpr std::size_t chunks_for(std::size_t size_bytes, std::size_t chunk_bytes) {
  return (size_bytes + chunk_bytes - 1) / chunk_bytes;
}
constexpr Range chunk_of(std::size_t size_bytes, std::size_t chunk_bytes, std::size_t chunk) {
  const std::size_t begin = chunk * chunk_bytes;
  return Range{begin < size_bytes ? begin : size_bytes,
               begin + chunk_bytes < size_bytes ? begin + chunk_bytes : size_bytes};
}

// The neighbours of `index` in a ring of `count`, at any distance.
constexpr int ring_next(int index, int count, int distance = 1) {
  return (index + distance) % count;
}
constexpr int ring_previous(int index, int count, int distance = 1) {
  return (index + count - distance % count) % count;
}

// Ring allreduce in 2 (count-1) steps: at `step`, `index` sends this part to its next neighbour and receives
// ring_recv_part from its previous one. In the first count-1 steps it reduces what it receives into its own data, and
// then part ring_next(index) is complete. In the other steps it stores what it receives unchanged.
constexpr int ring_send_part(int index, int count, int step) {
  return ring_previous(index, count, step);
}
constexpr int ring_recv_part(int index, int count, int step) {
  return ring_previous(index, count, step + 1);
}

// RingOrder is the order in which the pieces of a ring's parts are sent on its connections. The steps of a piece are
// kAhead turns apart. So while a piece must wait for incoming data to be reduced, other pieces behind it can go. Both
// sides of a connection walk the same order, so a piece is received where it was sent.
class RingOrder {
 public:
  // For `pieces` pieces, and the steps [first, end) of the ring. A later piece depends on no earlier one.
  RingOrder(std::size_t pieces, int first, int end)
      : pieces_(pieces), steps_(static_cast<std::size_t>(end - first)), first_(first) {
    is_over_ = pieces_ == 0 || steps_ == 0;
  }

  [[nodiscard]] bool is_over() const { return is_over_; }
  // The functions below may be called unless it is over.
  [[nodiscard]] std::size_t piece() const { return turn_ - kAhead * at_; }
  [[nodiscard]] int step() const { return first_ + static_cast<int>(at_); }
  void advance();
  // Whether this order has advanced past that piece's step.
  [[nodiscard]] bool is_past(std::size_t piece, int step) const {
    const auto at = static_cast<std::size_t>(step - first_);
    const std::size_t turn = piece + kAhead * at;
    return is_over_ || turn_ > turn || (turn_ == turn && at_ < at);
  }

 private:
  static constexpr std::size_t kAhead = 2;

  std::size_t pieces_;
  std::size_t steps_;
  int first_;
  // Within a turn the later steps come first, since they belong to the older pieces.
  std::size_t turn_ = 0;
  std::size_t at_ = 0;  // the step, counted from first_
  bool is_over_ = false;
};

inline void RingOrder::advance() {
  for (;;) {
    if (at_ > 0) {
      --at_;
    } else {
      ++turn_;
      at_ = turn_ / kAhead < steps_ ? turn_ / kAhead : steps_ - 1;
    }
    // Not every turn has every step: early turns have few steps, and late turns no new pieces.
    if (turn_ - kAhead * at_ < pieces_) {
      return;
    }
    if (at_ + 1 == steps_) {
      is_over_ = true;
      return;
    }
    at_ = 0;  // the earlier steps of this turn have still later pieces
  }
}

}  // namespace hvd
