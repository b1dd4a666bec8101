#include "runtime/rendezvous/exchange_board.h"

#include <doctest/doctest.h>

#include "runtime/rendezvous/store_wire.h"

namespace hvd::exchange_board_test {
namespace {

void require_refused(ExchangeBoard& board, int rank, const std::string& key, const std::string& value, Code code) {
  const std::size_t open_before = board.open_keys();
  const auto posted = board.post(rank, key, value);
  REQUIRE_FALSE(posted.ok());
  CHECK(posted.error().code() == code);
  CHECK(board.open_keys() == open_before);
}

}  // namespace

TEST_CASE("the last rank to post gets all values in rank order, and the key is forgotten") {
  ExchangeBoard board(3);
  CHECK_FALSE(board.post(2, "k", "c").value());
  CHECK_FALSE(board.post(0, "k", "").value());
  CHECK(board.missing("k") == std::vector<int>{1});
  const auto all = board.post(1, "k", "b").value();
  REQUIRE(all);
  CHECK(*all == ExchangeBoard::Values{"", "b", "c"});
  CHECK(board.open_keys() == 0);
  CHECK(board.missing("k").empty());
  CHECK_FALSE(board.post(1, "k", "again").value());
}

TEST_CASE("keys are independent, and a job of one rank is complete at once") {
  ExchangeBoard two(2);
  CHECK_FALSE(two.post(0, "a", "1").value());
  CHECK_FALSE(two.post(1, "b", "2").value());
  CHECK(two.open_keys() == 2);
  CHECK(two.post(1, "a", "3").value());
  ExchangeBoard one(1);
  CHECK(*one.post(0, "a", "x").value() == ExchangeBoard::Values{"x"});
}

TEST_CASE("what a rank must not post is refused and changes nothing") {
  ExchangeBoard board(2);
  require_refused(board, -1, "k", "v", Code::kInvalid);
  require_refused(board, 2, "k", "v", Code::kInvalid);
  require_refused(board, 0, "", "v", Code::kInvalid);
  require_refused(board, 0, std::string(store_wire::kMaxKeyBytes + 1, 'k'), "v", Code::kInvalid);
  require_refused(board, 0, "k", std::string(store_wire::kMaxValueBytes + 1, 'v'), Code::kInvalid);
  CHECK(board.post(0, std::string(store_wire::kMaxKeyBytes, 'k'), std::string(store_wire::kMaxValueBytes, 'v')).ok());
  CHECK(board.post(0, "k", "v").ok());
  require_refused(board, 0, "k", "v", Code::kInvalid);
  CHECK(board.post(1, "k", "w").value());
}

TEST_CASE("a rank cannot open keys without end") {
  ExchangeBoard board(2);
  for (std::size_t i = 0; i < ExchangeBoard::kMaxOpenKeys; ++i) {
    REQUIRE(board.post(0, "key " + std::to_string(i), "v").ok());
  }
  require_refused(board, 0, "one more", "v", Code::kResource);
  CHECK(board.post(1, "key 0", "v").value());
  CHECK(board.post(0, "one more", "v").ok());
}

TEST_CASE("values that do not fit one frame together are refused") {
  static constexpr int kRanks = 300;
  ExchangeBoard board(kRanks);
  const std::string large(store_wire::kMaxValueBytes, 'v');
  int refused = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    refused += board.post(rank, "k", large).ok() ? 0 : 1;
  }
  // 16 MiB hold 255 values of 64 KiB and their lengths.
  CHECK(refused == kRanks - 255);
}

}  // namespace hvd::exchange_board_test
