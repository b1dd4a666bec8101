// Live rows: lines that stay at the bottom of a terminal while other output scrolls above them: a progress bar a rank,
// the state of the start. Here is what makes rows fit and the bytes that draw and remove them (ECMA-48); pure.
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

// What a rank wrote, made safe for one row: colours (CSI ... m) stay, other control characters and sequences, which
// could move the cursor, go. At most `columns` wide (of East Asian characters each counts two), then colours end.
std::string fit_row(std::string_view text, std::size_t columns);
// At most half the terminal, each row within its width; the last one tells how many are not shown.
std::vector<std::string> fit_rows(const std::vector<std::string>& rows, TerminalSize size);

// The cursor is left at the end of the last row, so that drawing never scrolls more than it has to.
std::string draw_rows(const std::vector<std::string>& rows);
// Removes that many drawn rows, and leaves the cursor where the first began.
std::string erase_rows(std::size_t count);

}  // namespace hvd::launch
