#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "launcher/check/link_findings.h"
#include "launcher/report/check_text.h"
#include "launcher/report/text_grid.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Both tables use this width for their titles, so that their columns line up.
constexpr std::size_t kTitleWidth = std::string_view("one stream, MB/s").size();

using Links = std::map<std::pair<int, int>, const CheckedLink*>;

// LinkMeasure is one figure of each link, in a unit that suits the largest.
struct LinkMeasure {
  std::string title;
  std::function<double(const CheckedLink&)> value;  // 0: not measured
  std::function<bool(const CheckedLink&)> is_slow;
};

// Prints three digits, but at most one after the point.
std::string figure(double value) {
  return formatted(value < 10 ? "%.1f" : "%.0f", value);
}

GridCell cell_of(const LinkMeasure& measure, const CheckedLink* link) {
  if (link == nullptr) {
    return {"-", Tone::kFaint};
  }
  if (!link->was_tried) {
    return {"?", Tone::kFaint};
  }
  if (!link->error.empty()) {
    return {"fails", Tone::kProblem, true};
  }
  const double value = measure.value(*link);
  if (value <= 0) {
    return {"?", Tone::kFaint};
  }
  return measure.is_slow(*link) ? GridCell{figure(value), Tone::kWarning, true} : GridCell{figure(value), Tone::kPlain};
}

double seconds_of(const CheckedLink& link) {
  return std::chrono::duration<double>(link.round_trip).count();
}

std::array<LinkMeasure, 2> measures_of(const CheckResult& result) {
  double longest = 0;
  double fastest = 0;
  for (const CheckedLink& link : result.links) {
    longest = std::max(longest, link.works() ? seconds_of(link) : 0);
    fastest = std::max(fastest, link.bytes_per_second);
  }
  const bool is_long = longest >= 0.01;
  const bool is_fast = fastest >= 1e9;
  return {LinkMeasure{std::string("round trip, ") + (is_long ? "ms" : "us"),
                      [is_long](const CheckedLink& link) { return seconds_of(link) * (is_long ? 1e3 : 1e6); },
                      [&result](const CheckedLink& link) { return has_slow_round_trip(result, link); }},
          LinkMeasure{std::string("one stream, ") + (is_fast ? "GB/s" : "MB/s"),
                      [is_fast](const CheckedLink& link) { return link.bytes_per_second / (is_fast ? 1e9 : 1e6); },
                      [&result](const CheckedLink& link) { return has_slow_bandwidth(result, link); }}};
}

// Returns "node3", or "2" where names are long and hosts many: the number that stands before the name in the first
// column.
std::vector<std::string> short_names(const CheckResult& result, const std::vector<int>& hosts) {
  constexpr std::size_t kLongest = 8;
  std::vector<std::string> names;
  bool is_long = false;
  for (const int host : hosts) {
    names.push_back(shown(result.hosts[static_cast<std::size_t>(host)].name()));
    is_long = is_long || width_of(names.back()) > kLongest;
  }
  for (std::size_t i = 0; i < hosts.size() && is_long; ++i) {
    names[i] = std::to_string(hosts[i]);
  }
  return names;
}

// Prints the matrix in blocks of as many columns of hosts as the width allows.
std::vector<std::string> matrix(const CheckResult& result, const Links& links, const std::vector<int>& hosts,
                                const LinkMeasure& measure, const CheckTextOptions& options) {
  const std::vector<std::string> names = short_names(result, hosts);
  GridColumn rows{{measure.title, Tone::kHeading}, false, 0, {}};
  rows.least_width = kTitleWidth;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string full = shown(result.hosts[static_cast<std::size_t>(hosts[i])].name());
    rows.cells.push_back({"from " + (names[i] == full ? full : names[i] + " " + full), Tone::kPlain});
  }
  std::size_t widest = std::max(kTitleWidth, width_of(measure.title));
  for (const GridCell& cell : rows.cells) {
    widest = std::max(widest, width_of(cell.text));
  }
  std::size_t cell = std::string_view("  fails!").size();  // includes the gap before it
  for (const std::string& name : names) {
    cell = std::max(cell, width_of("  to " + name) + 1);  // includes the place of a mark
  }
  const std::size_t room = options.width > widest + cell ? (options.width - widest) / cell : 1;
  std::vector<std::string> lines;
  for (std::size_t first = 0; first < hosts.size(); first += room) {
    std::vector<GridColumn> columns{rows};
    for (std::size_t to = first; to < std::min(first + room, hosts.size()); ++to) {
      GridColumn column{{"to " + names[to], Tone::kHeading}, true, 0, {}};
      for (const int from : hosts) {
        const auto link = links.find({from, hosts[to]});
        column.cells.push_back(cell_of(measure, link == links.end() ? nullptr : link->second));
      }
      columns.push_back(std::move(column));
    }
    const auto block = grid_lines(std::move(columns), options.width, options.color);
    lines.insert(lines.end(), block.begin(), block.end());
  }
  return lines;
}

// Returns least, median and most over a ring, and between which hosts least and most were measured.
std::string summary(const CheckResult& result, const LinkMeasure& measure) {
  std::vector<std::pair<double, const CheckedLink*>> all;
  for (const CheckedLink& link : result.links) {
    if (link.works() && measure.value(link) > 0) {
      all.emplace_back(measure.value(link), &link);
    }
  }
  if (all.empty()) {
    return "";
  }
  std::sort(all.begin(), all.end());
  const auto at = [&](std::size_t i) {
    const CheckedLink& link = *all[i].second;
    return figure(all[i].first) + " (" + shown(result.hosts[static_cast<std::size_t>(link.from)].name()) + " to " +
           shown(result.hosts[static_cast<std::size_t>(link.to)].name()) + ")";
  };
  return measure.title + ", each host and the next: least " + at(0) + ", median " + figure(all[all.size() / 2].first) +
         ", most " + at(all.size() - 1);
}

}  // namespace

std::vector<std::string> link_table(const CheckResult& result, const CheckTextOptions& options) {
  Links links;
  std::set<int> nodes;
  for (const CheckedLink& link : result.links) {
    links[{link.from, link.to}] = &link;
    nodes.insert({link.from, link.to});
  }
  const std::vector<int> hosts(nodes.begin(), nodes.end());
  std::vector<std::string> lines;
  for (const LinkMeasure& measure : measures_of(result)) {
    const std::vector<std::string> part = hosts.empty()          ? std::vector<std::string>()
                                          : result.has_all_pairs ? matrix(result, links, hosts, measure, options)
                                                                 : wrapped("", summary(result, measure), options.width);
    if (!lines.empty() && result.has_all_pairs && !part.empty()) {
      lines.emplace_back();
    }
    lines.insert(lines.end(), part.begin(), part.end());
  }
  return lines;
}

}  // namespace hvd::launch
