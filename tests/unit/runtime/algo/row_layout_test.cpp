#include "runtime/algo/row_layout.h"

#include <cstdint>
#include <numeric>

#include <doctest/doctest.h>

namespace hvd::row_layout_test {
namespace {

RowLayout layout_of(std::vector<RowLayout::Tensor> tensors, int size) {
  auto made = RowLayout::make(std::move(tensors), size);
  REQUIRE(made.ok());
  return std::move(made).value();
}

}  // namespace

TEST_CASE("even shares: the lowest ranks get the rows that remain") {
  CHECK(even_rows(5, 2) == std::vector<std::int64_t>{3, 2});
  CHECK(even_rows(2, 4) == std::vector<std::int64_t>{1, 1, 0, 0});
  CHECK(even_rows(0, 3) == std::vector<std::int64_t>{0, 0, 0});
  CHECK(even_rows(8, 4) == std::vector<std::int64_t>{2, 2, 2, 2});
  for (const std::int64_t rows : {1, 7, 1024}) {
    for (int size = 1; size <= 9; ++size) {
      const auto shares = even_rows(rows, size);
      CHECK(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) == rows);
      CHECK(shares.front() - shares.back() <= 1);
    }
  }
}

TEST_CASE("packed, what belongs to one rank is side by side, and unpacking is the reverse") {
  // Two tensors of three ranks: rows of one byte, 1+0+2 of them, and rows of two bytes, 2+1+0 of them.
  const RowLayout layout = layout_of({{1, {1, 0, 2}}, {2, {2, 1, 0}}}, 3);
  CHECK(std::vector<std::size_t>(layout.rank_bytes().begin(), layout.rank_bytes().end()) ==
        std::vector<std::size_t>{5, 2, 2});
  CHECK(layout.total_bytes() == 9);
  const std::string first = "abc";
  const std::string second = "112233";
  std::string packed(9, '?');
  const void* apart[] = {first.data(), second.data()};
  layout.pack(apart, packed.data());
  CHECK(packed == "a112233bc");
  std::string again_first(3, '?');
  std::string again_second(6, '?');
  void* targets[] = {again_first.data(), again_second.data()};
  layout.unpack(packed.data(), targets);
  CHECK(again_first == first);
  CHECK(again_second == second);
}

TEST_CASE("what other ranks claim is checked") {
  CHECK(RowLayout::make({{4, {1, -1}}}, 2).error().code() == Code::kProtocol);
  CHECK(RowLayout::make({{4, {1}}}, 2).error().code() == Code::kProtocol);
  CHECK(RowLayout::make({{4, {INT64_MAX, 1}}}, 2).error().code() == Code::kResource);
  CHECK(RowLayout::make({{1, {std::int64_t{1} << 56, 1}}}, 2).error().code() == Code::kResource);
  const RowLayout empty = layout_of({{4, {0, 0}}}, 2);
  CHECK(empty.total_bytes() == 0);
  const void* nowhere[] = {nullptr};
  empty.pack(nowhere, nullptr);
}

}  // namespace hvd::row_layout_test
