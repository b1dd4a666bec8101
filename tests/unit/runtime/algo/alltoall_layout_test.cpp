#include "runtime/algo/alltoall_layout.h"

#include <random>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::alltoall_layout_test {

TEST_CASE("an alltoall's pieces lie in the order of receivers with who sends, and of senders with who gets") {
  // sizes[from * 3 + to]
  const std::vector<std::size_t> sizes = {1, 2, 3, 0, 5, 6, 7, 0, 9};
  const AlltoallLayout layout(sizes, 3);
  CHECK(layout.bytes(0, 2) == 3);
  CHECK(layout.sent(0, Range{1, 2}).begin == 1);
  CHECK(layout.sent(0, Range{1, 2}).end == 3);
  CHECK(layout.sent(1, Range{1, 3}).begin == 0);
  CHECK(layout.sent(1, Range{1, 3}).size() == 11);
  CHECK(layout.received(Range{2, 3}, 2).begin == 9);
  CHECK(layout.received(Range{0, 3}, 0).size() == 8);
  CHECK(layout.total(Range{0, 2}, Range{2, 3}) == 9);
  CHECK(layout.total(Range{1, 1}, Range{0, 3}) == 0);
}

TEST_CASE("what ranks send and what ranks get are the same bytes, and leave no gaps") {
  std::mt19937 random(5);
  for (std::size_t size = 1; size <= 6; ++size) {
    std::vector<std::size_t> sizes(size * size);
    for (std::size_t& bytes : sizes) {
      bytes = random() % 4;
    }
    const AlltoallLayout layout(sizes, static_cast<int>(size));
    for (std::size_t from = 0; from < size; ++from) {
      std::size_t sent = 0;
      for (std::size_t to = 0; to < size; ++to) {
        CHECK(layout.sent(from, Range{to, to + 1}).begin == sent);
        CHECK(layout.sent(from, Range{to, to + 1}).size() == layout.received(Range{from, from + 1}, to).size());
        sent = layout.sent(from, Range{to, to + 1}).end;
      }
      CHECK(layout.sent(from, Range{0, size}).size() == sent);
    }
  }
}

}  // namespace hvd::alltoall_layout_test
