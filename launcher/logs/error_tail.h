// ErrorTail keeps the last lines of a rank's standard error, for the report of its failure. It also knows how many of
// them the user has just seen, so that the report need not repeat these.
//
// Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

struct LastErrors {
  std::vector<std::string> lines;  // oldest first, without newlines
  std::size_t just_shown = 0;      // the last so many are also the last on the console, but for a few of others
};

class ErrorTail {
 public:
  // Takes a line, with or without its newline. `place` is its number among all lines that the console showed, from 1;
  // 0: the console did not show it, or showed another line in its place.
  void add(std::string_view line, std::uint64_t place);
  // Returns the lines, after the console has shown so many.
  [[nodiscard]] LastErrors last(std::uint64_t shown) const;

 private:
  struct Line {
    std::string text;
    std::uint64_t place = 0;
  };

  std::deque<Line> lines_;
  bool ends_with_bar_ = false;  // its last line is the state of a progress bar
};

}  // namespace hvd::launch
