// launcher/logs/live_rows: what a terminal is given for rows that are drawn anew.
#include "launcher/logs/live_rows.h"

#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::launch::live_rows_test {

using Rows = std::vector<std::string>;

TEST_CASE("a row is cut to its width, in characters") {
  CHECK(fit_row("12345", 5) == "12345");
  CHECK(fit_row("123456", 5) == "12345");
  CHECK(fit_row("a█é█b", 4) == "a█é█");
  CHECK(fit_row("漢字漢字", 5) == "漢字");
  CHECK(fit_row("", 5).empty());
}

TEST_CASE("colours of a row stay and end with it; what could move the cursor goes") {
  CHECK(fit_row("\x1b[31mred", 2) == "\x1b[31mre\x1b[0m");
  CHECK(fit_row("a\x1b[Ab\x1b[2Kc\x1b]d\n\te\x07\x7f", 9) == "abcde");
  CHECK(fit_row("a\x1b[12;", 9) == "a");
  CHECK(fit_row("a\x1b[3\n1mb\x1b[3\x08mc", 9) == "abc");
  CHECK(fit_row("a\x1b", 9) == "a");
}

TEST_CASE("bytes that are no UTF-8 are shown as such, and none is a control character to a terminal") {
  CHECK(fit_row("a\xff\x9b"
                "b",
                9) == "a??b");
  CHECK(fit_row("\xe2\x96", 9) == "??");
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string text(random() % 30, ' ');
    for (char& c : text) {
      c = static_cast<char>(random() % 256);
    }
    const std::string row = fit_row(text, 10);
    CHECK(row.find_first_of("\n\r\b\t\x7f") == std::string::npos);
    CHECK(row.size() <= text.size() + 4);
  }
}

TEST_CASE("rows take half of the terminal at most, and the last one counts the others") {
  const Rows rows = {"one", "two", "three", "four"};
  CHECK(fit_rows(rows, {80, 24}) == rows);
  CHECK(fit_rows(rows, {80, 6}) == Rows{"one", "two", "(2 more)"});
  CHECK(fit_rows(rows, {4, 8}) == Rows{"one", "two", "thr", "fou"});
  CHECK(fit_rows(rows, {1, 1}) == Rows{"("});
  CHECK(fit_rows({}, {80, 24}).empty());
}

TEST_CASE("rows are removed from where the cursor was left") {
  CHECK(draw_rows({"a", "b"}) == "a\r\nb");
  CHECK(erase_rows(2) == "\r\x1b[1A\x1b[J");
  CHECK(erase_rows(1) == "\r\x1b[J");
}

}  // namespace hvd::launch::live_rows_test
