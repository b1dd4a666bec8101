#include "launcher/report/listing.h"

#include <algorithm>

#include "launcher/report/text_grid.h"

namespace hvd::launch {
namespace {

// az pads its headings by this much.
constexpr std::size_t kBesideHeading = 2;

void add_cell(std::string& line, const std::string& text, std::size_t width, bool is_number) {
  const std::string padding(width - std::min(width, width_of(text)), ' ');
  line += is_number ? padding + text : text + padding;
}

void end_line(std::string& text, std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
  line.clear();
}

}  // namespace

std::string listing(const std::vector<ListingColumn>& columns, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  std::vector<std::vector<std::string>> cells;
  widths.reserve(columns.size());
  for (const ListingColumn& column : columns) {
    widths.push_back(column.heading.size() + kBesideHeading);
  }
  for (const auto& row : rows) {
    auto& own = cells.emplace_back();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      own.push_back(shown(row[i]));
      widths[i] = std::max(widths[i], width_of(own.back()));
    }
  }
  std::string text;
  std::string line;
  const auto add_row = [&](const auto& cell_of) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      line += i == 0 ? "" : "  ";
      add_cell(line, cell_of(i), widths[i], columns[i].is_number);
    }
    end_line(text, line);
  };
  add_row([&](std::size_t i) { return columns[i].heading; });
  add_row([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : cells) {
    add_row([&](std::size_t i) { return row[i]; });
  }
  return text;
}

}  // namespace hvd::launch
