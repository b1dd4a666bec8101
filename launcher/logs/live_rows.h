// Live rows are lines that stay at the bottom of a terminal while other output scrolls above them: a progress bar for
// each rank, or the state of the start. These functions make rows fit, and return the bytes that draw and remove them
// (ECMA-48). Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

struct TerminalSize {
  std::size_t columns = 80;
  std::size_t lines = 24;
};

// Makes a rank's text safe for one row. Colours (CSI ... m) stay; other control characters and sequences, which could
// move the cursor, are removed. The row is at most `columns` wide, where East Asian characters count two, and colours
// are reset at its end.
std::string fit_row(std::string_view text, std::size_t columns);
// Fits the rows to half the terminal's height and its full width; the last row counts those that are not shown.
std::vector<std::string> fit_rows(const std::vector<std::string>& rows, TerminalSize size);

// Leaves the cursor at the end of the last row, so that drawing never scrolls more than it has to.
std::string draw_rows(const std::vector<std::string>& rows);
// Removes this many drawn rows, and leaves the cursor where the first one began.
std::string erase_rows(std::size_t count);

}  // namespace hvd::launch
