#include "runtime/algo/schedule.h"

#include <set>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::schedule_test {

TEST_CASE("parts cover everything once, in order, as even as the grain allows") {
  for (const std::size_t total : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1000}}) {
    for (const std::size_t parts : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{8}}) {
      for (const std::size_t grain : {std::size_t{1}, std::size_t{64}}) {
        std::size_t at = 0;
        std::size_t shortest = total;
        std::size_t longest = 0;
        for (std::size_t part = 0; part < parts; ++part) {
          const Range range = split(total, parts, part, grain);
          CHECK(range.begin == at);
          CHECK((range.end == total || range.end % grain == 0));
          at = range.end;
          shortest = range.size() < shortest ? range.size() : shortest;
          longest = range.size() > longest ? range.size() : longest;
        }
        CHECK(at == total);
        CHECK(longest - shortest <= 2 * grain);
      }
    }
  }
}

TEST_CASE("the ring's neighbours are each other's") {
  for (int count = 1; count <= 9; ++count) {
    for (int i = 0; i < count; ++i) {
      for (int distance = 1; distance < 2 * count; ++distance) {
        CHECK(ring_previous(ring_next(i, count, distance), count, distance) == i);
      }
    }
  }
}

TEST_CASE("after the ring's steps every part has met every node once, at the node that then holds it") {
  for (int count = 2; count <= 9; ++count) {
    // met[node][part]: whose contributions are in that node's copy of the part.
    std::vector<std::vector<std::multiset<int>>> met(static_cast<std::size_t>(count));
    for (int node = 0; node < count; ++node) {
      met[static_cast<std::size_t>(node)].assign(static_cast<std::size_t>(count), {node});
    }
    for (int step = 0; step + 1 < count; ++step) {
      auto next = met;
      for (int node = 0; node < count; ++node) {
        const int from = ring_previous(node, count);
        const int part = ring_recv_part(node, count, step);
        REQUIRE(part == ring_send_part(from, count, step));
        const auto& sent = met[static_cast<std::size_t>(from)][static_cast<std::size_t>(part)];
        next[static_cast<std::size_t>(node)][static_cast<std::size_t>(part)].insert(sent.begin(), sent.end());
      }
      met = next;
    }
    for (int node = 0; node < count; ++node) {
      const auto& whole = met[static_cast<std::size_t>(node)][static_cast<std::size_t>(ring_next(node, count))];
      CHECK(whole.size() == static_cast<std::size_t>(count));
      CHECK(std::set<int>(whole.begin(), whole.end()).size() == static_cast<std::size_t>(count));
    }
  }
}

TEST_CASE("a ring's order has each piece's steps once, and each after what it needs") {
  for (int count = 2; count <= 6; ++count) {
    const int all = 2 * (count - 1);
    for (const auto& steps : {std::pair(0, count - 1), std::pair(count - 1, all), std::pair(0, all)}) {
      const int first = steps.first;
      const int end = steps.second;
      for (std::size_t pieces = 0; pieces <= 7; ++pieces) {
        CAPTURE(count);
        CAPTURE(first);
        CAPTURE(end);
        CAPTURE(pieces);
        std::set<std::pair<std::size_t, int>> done;
        RingOrder order(pieces, first, end);
        for (; !order.is_over(); order.advance()) {
          REQUIRE(order.piece() < pieces);
          REQUIRE(order.step() >= first);
          REQUIRE(order.step() < end);
          CHECK(done.emplace(order.piece(), order.step()).second);
          for (std::size_t piece = 0; piece < pieces; ++piece) {
            for (int step = first; step < end; ++step) {
              const bool is_here = piece == order.piece() && step == order.step();
              CHECK(order.is_past(piece, step) == (done.count({piece, step}) == 1 && !is_here));
            }
          }
          CHECK((order.step() == first || order.is_past(order.piece(), order.step() - 1)));
        }
        CHECK(done.size() == pieces * static_cast<std::size_t>(end - first));
      }
    }
  }
}

TEST_CASE("behind a piece that waits for what comes in there is another that does not") {
  RingOrder order(4, 0, 2);
  std::vector<std::pair<std::size_t, int>> walked;
  for (; !order.is_over(); order.advance()) {
    walked.emplace_back(order.piece(), order.step());
  }
  CHECK(walked ==
        std::vector<std::pair<std::size_t, int>>{{0, 0}, {1, 0}, {0, 1}, {2, 0}, {1, 1}, {3, 0}, {2, 1}, {3, 1}});
}

}  // namespace hvd::schedule_test
