#include "launcher/report/text_grid.h"

#include <algorithm>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kGap = 2;

// Returns the space after a number in a column where others are marked, so that digits stay below each other.
std::size_t tail_of(const GridColumn& column, const GridCell& cell) {
  const bool has_marks = column.is_right && std::any_of(column.cells.begin(), column.cells.end(),
                                                        [](const GridCell& other) { return other.is_marked; });
  return has_marks && !cell.is_marked ? 1 : 0;
}

std::string text_of(const GridCell& cell) {
  return cell.is_marked ? cell.text + "!" : cell.text;
}

std::size_t column_width(const GridColumn& column) {
  std::size_t width = std::max(column.least_width, width_of(column.heading.text) + tail_of(column, column.heading));
  for (const GridCell& cell : column.cells) {
    width = std::max(width, width_of(text_of(cell)) + tail_of(column, cell));
  }
  return width;
}

std::size_t total_width(const std::vector<GridColumn>& columns) {
  std::size_t width = 0;
  for (const GridColumn& column : columns) {
    width += column_width(column) + kGap;
  }
  return width - std::min(width, kGap);
}

void drop_least(std::vector<GridColumn>& columns, std::size_t width) {
  while (total_width(columns) > width) {
    const auto least = std::max_element(columns.begin(), columns.end(),
                                        [](const GridColumn& a, const GridColumn& b) { return a.rank < b.rank; });
    if (least == columns.end() || least->rank == 0) {
      return;
    }
    columns.erase(least);
  }
}

// `pending` counts the spaces before the next text; they are written only if one comes.
void add_cell(std::string& line, std::size_t& pending, const GridCell& cell, const GridColumn& column, bool color) {
  const std::string text = text_of(cell);
  const std::size_t tail = tail_of(column, cell);
  const std::size_t fill = column_width(column) - width_of(text) - tail;
  pending += column.is_right ? fill : 0;
  if (!text.empty()) {
    line += std::string(pending, ' ') + toned(text, cell.tone, color);
    pending = 0;
  }
  pending += (column.is_right ? 0 : fill) + tail + kGap;
}

}  // namespace

std::string toned(std::string_view text, Tone tone, bool color) {
  const auto in = [text](const char* code) {
    return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
  };
  if (!color || text.empty()) {
    return std::string(text);
  }
  switch (tone) {
    case Tone::kPlain:
      break;
    case Tone::kHeading:
      return in("1");
    case Tone::kFaint:
      return in("2");
    case Tone::kWarning:
      return in("33");
    case Tone::kProblem:
      return in("1;31");
  }
  return std::string(text);
}

std::string shown(std::string_view text) {
  std::string safe = without_controls(text);
  safe.resize(safe.find_last_not_of(' ') + 1);  // npos + 1 is 0
  return safe;
}

std::string shown_lines(std::string_view text) {
  return without_controls(text, "\n\t");
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

std::vector<std::string> grid_lines(std::vector<GridColumn> columns, std::size_t width, bool color) {
  drop_least(columns, width);
  std::vector<std::string> lines;
  const std::size_t rows = columns.empty() ? 0 : columns.front().cells.size();
  for (std::size_t row = 0; row <= rows && !columns.empty(); ++row) {
    std::string line;
    std::size_t pending = 0;
    for (const GridColumn& column : columns) {
      add_cell(line, pending, row == 0 ? column.heading : column.cells[row - 1], column, color);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> wrapped(std::string_view first, std::string_view text, std::size_t width) {
  const std::size_t indent = width_of(first);
  std::vector<std::string> lines;
  std::string line(first);
  std::size_t used = indent;
  bool has_word = false;
  while (!text.empty()) {
    const std::string_view word = take_until(text, ' ');
    if (word.empty()) {
      continue;
    }
    if (has_word && used + 1 + width_of(word) > width) {
      lines.push_back(std::move(line));
      line = std::string(indent, ' ');
      used = indent;
      has_word = false;
    }
    line += (has_word ? " " : "") + std::string(word);
    used += (has_word ? 1 : 0) + width_of(word);
    has_word = true;
  }
  lines.push_back(std::move(line));
  return lines;
}

}  // namespace hvd::launch
