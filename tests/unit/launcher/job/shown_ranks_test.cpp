// launcher/job/shown_ranks: numbers and ranges of ranks, from text.
#include "launcher/job/shown_ranks.h"

#include <string>

#include <doctest/doctest.h>

namespace hvd::launch::shown_ranks_test {
namespace {

// Returns which of the ranks 0 to 9 are shown, or the message of an error.
std::string shown(const char* text) {
  const auto ranks = ShownRanks::parse(text);
  if (!ranks.ok()) {
    return ranks.error().message();
  }
  std::string numbers;
  for (int rank = 0; rank < 10; ++rank) {
    numbers += ranks.value().has(rank) ? std::to_string(rank) : "";
  }
  return numbers;
}

}  // namespace

TEST_CASE("numbers and ranges of ranks are shown, and without any all are") {
  CHECK(shown("0") == "0");
  CHECK(shown("0,4-7") == "04567");
  CHECK(shown("8-1000000,3,3-3,2-4") == "23489");
  CHECK(ShownRanks::parse("4-7,0").value().last() == 7);
  CHECK(ShownRanks().has(0));
  CHECK(ShownRanks().has(1'000'000));
  CHECK(ShownRanks().last() == -1);
}

TEST_CASE("what is neither a number nor a range is named") {
  for (const char* const wrong : {"", ",", "0,", "a", "-1", "1-", "3-1", "1-2-3", "0 1", "+1", "0x1", "99999999999"}) {
    CAPTURE(wrong);
    CHECK(shown(wrong).find("is neither a rank's number nor a range of them, as in 0,4-7") != std::string::npos);
  }
  CHECK(shown("0,4-x") == "'4-x' is neither a rank's number nor a range of them, as in 0,4-7");
}

}  // namespace hvd::launch::shown_ranks_test
