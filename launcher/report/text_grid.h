// These functions lay out rows of cells in columns for a terminal or a file, and break text into lines. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

enum class Tone : std::uint8_t { kPlain, kHeading, kFaint, kWarning, kProblem };

// Returns the text in its colour, or unchanged where `color` is false.
std::string toned(std::string_view text, Tone tone, bool color);

// Replaces characters that a terminal could take for a command, or for the end of the line, by '?'. Texts that come
// from hosts go through it.
std::string shown(std::string_view text);

// The same for a text of several lines: line ends and tabs stay.
std::string shown_lines(std::string_view text);

// Returns the columns that a text takes: one for each character of UTF-8.
std::size_t width_of(std::string_view text);

struct GridCell {
  std::string text;  // result of shown()
  Tone tone = Tone::kPlain;
  bool is_marked = false;  // marked by a "!", which is visible without colours too
};

struct GridColumn {
  GridCell heading;
  bool is_right = false;  // true for numbers
  int rank = 0;           // of columns for which there is no room, the one with the highest rank goes first; 0: never
  std::vector<GridCell> cells;
  std::size_t least_width = 0;
};

// Returns lines of at most `width` columns, if leaving out columns can achieve that, without spaces at their ends. All
// columns have the same number of cells.
std::vector<std::string> grid_lines(std::vector<GridColumn> columns, std::size_t width, bool color);

// Returns lines of at most `width` columns where words allow it. The first begins with `first`, the others with as many
// spaces as that is wide.
std::vector<std::string> wrapped(std::string_view first, std::string_view text, std::size_t width);

}  // namespace hvd::launch
