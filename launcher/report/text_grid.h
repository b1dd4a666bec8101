// TextGrid: rows of cells, laid out in columns for a terminal or a file; and words broken into lines. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

enum class Tone : std::uint8_t { kPlain, kHeading, kFaint, kWarning, kProblem };

// The text in its colour, or as it is.
std::string toned(std::string_view text, Tone tone, bool color);

// What a terminal could take for a command, or for the end of the line, as '?'. Texts that come from hosts go through
// it.
std::string shown(std::string_view text);

// Columns that a text takes: one for each character of UTF-8.
std::size_t width_of(std::string_view text);

struct GridCell {
  std::string text;  // shown()
  Tone tone = Tone::kPlain;
  bool is_marked = false;  // by a "!", which is seen without colours, too
};

struct GridColumn {
  GridCell heading;
  bool is_right = false;  // numbers
  int rank = 0;  // of columns for which there is no room, the one with the highest rank is left out first; 0: never
  std::vector<GridCell> cells;
  std::size_t least_width = 0;
};

// Lines of at most `width` columns where that can be had by leaving columns out; without spaces at their ends. Columns
// are equally long.
std::vector<std::string> grid_lines(std::vector<GridColumn> columns, std::size_t width, bool color);

// Lines of at most `width` columns where words allow it: the first begins with `first`, the others with as many spaces
// as that is wide.
std::vector<std::string> wrapped(std::string_view first, std::string_view text, std::size_t width);

}  // namespace hvd::launch
