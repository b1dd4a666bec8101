#include "runtime/algo/ring_flow.h"

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::ring_flow_test {
namespace {

// A ring whose connections are queues that hold little, and move as much at a time as chance wants. Each node's data
// lie in pieces that chance has cut, in place or (of what is reduced) not.
class Ring {
 public:
  Ring(std::vector<std::size_t> counts, std::size_t piece_bytes, RingFlow::Half half, unsigned seed)
      : counts_(std::move(counts)), random_(seed) {
    const auto n = static_cast<int>(counts_.size());
    std::size_t at = 0;
    for (const std::size_t count : counts_) {
      blocks_.push_back(Range{at, at + count * sizeof(std::int32_t)});
      at = blocks_.back().end;
    }
    data_.resize(counts_.size());
    inputs_.resize(counts_.size());
    pieces_.resize(counts_.size());
    maps_.resize(counts_.size());
    queues_.resize(counts_.size());
    for (int node = 0; node < n; ++node) {
      const auto self = static_cast<std::size_t>(node);
      for (std::size_t i = 0; i < at / sizeof(std::int32_t); ++i) {
        inputs_[self].push_back(value(node, i));
      }
      const bool in_place = half == RingFlow::Half::kGather || some(1) == 0;
      data_[self] = in_place ? inputs_[self] : std::vector<std::int32_t>(inputs_[self].size());
      cut(self, in_place ? data_[self].data() : inputs_[self].data());
      maps_[self].set(pieces_[self]);
      staging_.emplace_back(piece_bytes);
    }
    for (int node = 0; node < n; ++node) {
      const auto self = static_cast<std::size_t>(node);
      flows_.emplace_back(maps_[self], RingFlow::Place{blocks_, node, piece_bytes, staging_[self].data()}, half,
                          RingFlow::Sum{Dtype::kInt32, ReduceOp::kSum, half == RingFlow::Half::kBoth ? kAfter : 1.0});
      left_to_send_.push_back(flows_.back().bytes_to_send());
      left_to_receive_.push_back(flows_.back().bytes_to_receive());
    }
  }

  static std::int32_t value(int node, std::size_t i) { return (node + 1) * 1000 + static_cast<std::int32_t>(i); }

  // False: nothing moves, and it is not over.
  bool run() {
    static constexpr int kPatience = 200;  // chance may want nothing for a while
    for (int idle = 0; idle < kPatience; ++idle) {
      bool is_over = true;
      for (std::size_t node = 0; node < flows_.size(); ++node) {
        idle = send(node) || receive(node) ? 0 : idle;
        is_over = is_over && is_through(node);
      }
      if (is_over) {
        // Each has moved just what it has told of beforehand.
        const auto is_nothing = [](std::uint64_t left) { return left == 0; };
        return std::all_of(left_to_send_.begin(), left_to_send_.end(), is_nothing) &&
               std::all_of(left_to_receive_.begin(), left_to_receive_.end(), is_nothing);
      }
    }
    return false;
  }

  [[nodiscard]] std::int32_t sum(std::size_t i) const {
    std::int32_t all = 0;
    for (std::size_t node = 0; node < counts_.size(); ++node) {
      all += value(static_cast<int>(node), i);
    }
    return all;
  }
  [[nodiscard]] const std::vector<std::int32_t>& data(std::size_t node) const { return data_[node]; }
  [[nodiscard]] Range elements(std::size_t node) const {
    return Range{blocks_[node].begin / sizeof(std::int32_t), blocks_[node].end / sizeof(std::int32_t)};
  }
  [[nodiscard]] std::size_t owner(std::size_t i) const {
    std::size_t node = 0;
    while (i >= elements(node).end) {
      ++node;
    }
    return node;
  }
  [[nodiscard]] std::size_t size() const { return counts_.size(); }

  static constexpr double kAfter = 3.0;  // what an allreduce multiplies its sum with

 private:
  static constexpr std::size_t kRoom = 40;

  void cut(std::size_t node, std::int32_t* input) {
    std::int32_t* output = data_[node].data();
    for (std::size_t left = data_[node].size(); left > 0;) {
      const std::size_t count = some(std::min<std::size_t>(left, 5));
      pieces_[node].push_back(Piece{input, output, count * sizeof(std::int32_t)});
      input += count;
      output += count;
      left -= count;
    }
  }

  std::size_t some(std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random_); }

  // To the next node, in that node's queue.
  bool send(std::size_t node) {
    std::deque<std::uint8_t>& queue = queues_[(node + 1) % queues_.size()];
    std::array<iovec, Flow::kMostParts> parts{};
    const std::size_t count = flows_[node].to_send(parts.data());
    const std::size_t bytes = some(std::min(bytes_of(parts, count), kRoom - queue.size()));
    each_byte(parts, bytes, [&queue](std::uint8_t& byte) { queue.push_back(byte); });
    flows_[node].note_sent(bytes);
    left_to_send_[node] -= bytes;
    return bytes != 0;
  }
  bool is_through(std::size_t node) {
    std::array<iovec, Flow::kMostParts> parts{};
    return flows_[node].to_send(parts.data()) == 0 && flows_[node].to_receive(parts.data()) == 0;
  }
  bool receive(std::size_t node) {
    std::deque<std::uint8_t>& queue = queues_[node];
    std::array<iovec, Flow::kMostParts> parts{};
    const std::size_t count = flows_[node].to_receive(parts.data());
    const std::size_t bytes = some(std::min(bytes_of(parts, count), queue.size()));
    each_byte(parts, bytes, [&queue](std::uint8_t& byte) {
      byte = queue.front();
      queue.pop_front();
    });
    left_to_receive_[node] -= bytes;
    if (bytes != 0) {
      flows_[node].note_received(bytes);
    }
    return bytes != 0;
  }

  static std::size_t bytes_of(std::span<const iovec> parts, std::size_t count) {
    std::size_t bytes = 0;
    for (const iovec& part : parts.first(count)) {
      bytes += part.iov_len;
    }
    return bytes;
  }
  template <typename Take>
  static void each_byte(std::span<const iovec> parts, std::size_t bytes, const Take& take) {
    for (const iovec& part : parts) {
      for (std::size_t i = 0; i < part.iov_len && bytes > 0; ++i, --bytes) {
        take(static_cast<std::uint8_t*>(part.iov_base)[i]);
      }
    }
  }

  std::vector<std::size_t> counts_;
  std::mt19937 random_;
  std::vector<Range> blocks_;
  std::vector<std::uint64_t> left_to_send_;
  std::vector<std::uint64_t> left_to_receive_;
  std::vector<std::vector<std::int32_t>> inputs_;
  std::vector<std::vector<std::int32_t>> data_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<PieceMap> maps_;
  std::vector<std::vector<std::uint8_t>> staging_;
  std::vector<RingFlow> flows_;
  std::vector<std::deque<std::uint8_t>> queues_;
};

const std::vector<std::vector<std::size_t>> kLayouts = {
    {1, 0}, {7, 7}, {64, 3}, {0, 0, 5}, {9, 9, 9}, {1, 50, 0, 2}, {20, 21, 20, 21, 20}};

template <typename Check>
void for_all(RingFlow::Half half, const Check& check) {
  unsigned seed = 1;
  for (const auto& layout : kLayouts) {
    for (const std::size_t piece : {std::size_t{4}, std::size_t{16}, std::size_t{64}, std::size_t{4096}}) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        CAPTURE(layout.size());
        CAPTURE(piece);
        CAPTURE(seed);
        Ring ring(layout, piece, half, seed++);
        REQUIRE(ring.run());
        check(ring);
      }
    }
  }
}

}  // namespace

TEST_CASE("a ring's allreduce leaves the sum of all everywhere, however little moves at a time") {
  for_all(RingFlow::Half::kBoth, [](const Ring& ring) {
    for (std::size_t node = 0; node < ring.size(); ++node) {
      for (std::size_t i = 0; i < ring.data(node).size(); ++i) {
        REQUIRE(ring.data(node)[i] == ring.sum(i) * Ring::kAfter);
      }
    }
  });
}

TEST_CASE("its first half leaves each node its own block's sum") {
  for_all(RingFlow::Half::kReduce, [](const Ring& ring) {
    for (std::size_t node = 0; node < ring.size(); ++node) {
      for (std::size_t i = ring.elements(node).begin; i < ring.elements(node).end; ++i) {
        REQUIRE(ring.data(node)[i] == ring.sum(i));
      }
    }
  });
}

TEST_CASE("its second half brings each node's own block to all") {
  for_all(RingFlow::Half::kGather, [](const Ring& ring) {
    for (std::size_t node = 0; node < ring.size(); ++node) {
      for (std::size_t i = 0; i < ring.data(node).size(); ++i) {
        REQUIRE(ring.data(node)[i] == Ring::value(static_cast<int>(ring.owner(i)), i));
      }
    }
  });
}

}  // namespace hvd::ring_flow_test
