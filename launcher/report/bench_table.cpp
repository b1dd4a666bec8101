#include "launcher/report/bench_table.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "launcher/report/summary.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using bench::BenchOptions;
using bench::Measure;
using bench::Row;
using bench::Timing;

bool has_op(Measure measure) {
  return measure == Measure::kAllreduce || measure == Measure::kReducescatter || measure == Measure::kLatency ||
         measure == Measure::kGradients || measure == Measure::kPairs || measure == Measure::kTune;
}

// True when the bandwidth is meaningful for the measure.
bool has_bandwidth(Measure measure) {
  return measure == Measure::kGradients || measure == Measure::kPairs || measure == Measure::kTune;
}

// Returns the width of the first column: a call, or a row of the tuning table.
int call_width(Measure measure) {
  return measure == Measure::kTune ? 24 : 12;
}

std::string op_name(const BenchOptions& options) {
  return has_op(options.measure) ? bench::to_words(options)[6] : "none";
}

double algbw(const Row& row, const Timing& timing) {
  return timing.median_s > 0 ? static_cast<double>(row.bytes) / timing.median_s : 0;
}

double busbw(const BenchOptions& options, int ranks, const Row& row, const Timing& timing) {
  return algbw(row, timing) * bench::bus_factor(options.measure, ranks);
}

// A time column has seven characters, so it shows three digits at least, whatever the time.
std::string microseconds(double seconds) {
  const double us = seconds * 1e6;
  return formatted(us < 100 ? "%.2f" : us < 10000 ? "%.1f" : "%.0f", us);
}

std::string result_columns(const BenchOptions& options, int ranks, const Row& row,
                           const std::optional<Timing>& timing) {
  if (!timing) {
    return formatted("  %7s  %6s  %6s  %6s", "-", "-", "-", "-");
  }
  return formatted("  %7s  %6.2f  %6.2f  %6lld", microseconds(timing->median_s).c_str(), algbw(row, *timing) / 1e9,
                   busbw(options, ranks, row, *timing) / 1e9, static_cast<long long>(timing->wrong));
}

std::string what_and_where(const BenchOptions& options, const Placement& placement) {
  return std::string("hvdrun bench ") + bench::name_of(options.measure) + ": " +
         counted(static_cast<std::size_t>(placement.size), "rank") + " on " + counted(host_count(placement), "node") +
         ", " + hvd::name_of(options.dtype) + (has_op(options.measure) ? ", " + op_name(options) : "");
}

std::string ranks_by_node(const Placement& placement) {
  std::string text;
  for (const NodePlan& node : placement.nodes) {
    const std::string first = std::to_string(node.ranks.front().rank);
    text += "#   " + (node.ranks.size() == 1 ? "rank " + first
                                             : "ranks " + first + " to " + std::to_string(node.ranks.back().rank));
    text += " on " + node.host.name + "\n";
  }
  return text;
}

const Timing& any_timing(const Row& row) {
  return row.in_place ? *row.in_place : *row.apart;
}

std::string distribution_line(const BenchOptions& options, int ranks, const Row& row) {
  const Timing& t = any_timing(row);
  std::string line =
      formatted("%*s  %11lld  %8lld  %9s  %9s  %9s  %9s  %9lld", call_width(options.measure), row.what.c_str(),
                static_cast<long long>(row.bytes), static_cast<long long>(row.count), microseconds(t.median_s).c_str(),
                microseconds(t.fastest_s).c_str(), microseconds(t.p99_s).c_str(), microseconds(t.slowest_s).c_str(),
                static_cast<long long>(t.calls));
  if (has_bandwidth(options.measure)) {
    line += formatted("  %6.2f  %6.2f", algbw(row, t) / 1e9, busbw(options, ranks, row, t) / 1e9);
  }
  return line + formatted("  %6lld\n", static_cast<long long>(t.wrong));
}

std::string distribution_head(const BenchOptions& options) {
  const bool is_step = options.measure == Measure::kGradients;
  const bool is_tuning = options.measure == Measure::kTune;
  const int width = call_width(options.measure) - 1;
  std::string text =
      formatted("#%*s  %11s  %8s  %9s  %9s  %9s  %9s  %9s", width, is_tuning ? "tried" : "call", "size",
                is_step ? "tensors" : "count", "median", "fastest", "99 %", "slowest", is_step ? "steps" : "calls");
  text += has_bandwidth(options.measure) ? "   algbw   busbw  #wrong\n" : "  #wrong\n";
  text +=
      formatted("#%*s  %11s  %8s  %9s  %9s  %9s  %9s  %9s", width, "", "(B)", "", "(us)", "(us)", "(us)", "(us)", "");
  return text + (has_bandwidth(options.measure) ? "  (GB/s)  (GB/s)\n" : "\n");
}

bool is_distribution(const BenchOptions& options) {
  return options.measure == Measure::kLatency || has_bandwidth(options.measure);
}

nlohmann::ordered_json timing_json(const BenchOptions& options, int ranks, const Row& row,
                                   const std::optional<Timing>& timing) {
  if (!timing) {
    return nullptr;
  }
  nlohmann::ordered_json json;
  json["seconds"] = timing->median_s;
  json["fastest"] = timing->fastest_s;
  json["p99"] = timing->p99_s;
  json["slowest"] = timing->slowest_s;
  json["calls"] = timing->calls;
  json["algbw"] = algbw(row, *timing);
  json["busbw"] = busbw(options, ranks, row, *timing);
  json["wrong"] = timing->wrong;
  return json;
}

}  // namespace

std::string bench_head(const BenchOptions& options, const Placement& placement) {
  std::string text = "# " + what_and_where(options, placement) + "\n" + ranks_by_node(placement) + "#\n";
  if (is_distribution(options)) {
    return text + distribution_head(options);
  }
  text += formatted("#%70s%34s\n", "out-of-place", "in-place");
  text += formatted("#%11s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
  for (int i = 0; i < 2; ++i) {
    text += formatted("  %7s  %6s  %6s  %6s", "time", "algbw", "busbw", "#wrong");
  }
  text += formatted("\n#%11s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i) {
    text += formatted("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
  }
  return text + "\n";
}

std::string bench_line(const BenchOptions& options, int ranks, const Row& row) {
  if (!row.apart && !row.in_place) {
    return "";
  }
  if (is_distribution(options)) {
    return distribution_line(options, ranks, row);
  }
  return formatted("%12lld  %12lld  %8s  %6s  %6d", static_cast<long long>(row.bytes),
                   static_cast<long long>(row.count), hvd::name_of(options.dtype), op_name(options).c_str(),
                   options.measure == Measure::kBroadcast ? 0 : -1) +
         result_columns(options, ranks, row, row.apart) + result_columns(options, ranks, row, row.in_place) + "\n";
}

std::string bench_foot(const BenchOptions& options, int ranks, const std::vector<Row>& rows) {
  long long wrong = 0;
  double bandwidth = 0;
  int count = 0;
  for (const Row& row : rows) {
    for (const auto* timing : {&row.apart, &row.in_place}) {
      if (*timing) {
        wrong += (*timing)->wrong;
        bandwidth += busbw(options, ranks, row, **timing);
        ++count;
      }
    }
  }
  std::string text = formatted("# Out of bounds values : %lld %s\n", wrong, wrong == 0 ? "OK" : "FAILED");
  if (!is_distribution(options) && count > 0) {
    text += formatted("# Avg bus bandwidth    : %.4g GB/s\n", bandwidth / count / 1e9);
  }
  return text;
}

std::string bench_json(const BenchOptions& options, int ranks, const Row& row) {
  nlohmann::ordered_json json;
  json["event"] = "measured";
  json["measure"] = bench::name_of(options.measure);
  json["call"] = row.what;
  json["ranks"] = ranks;
  json["bytes"] = row.bytes;
  json["count"] = row.count;
  json["type"] = hvd::name_of(options.dtype);
  json["op"] = has_op(options.measure) ? nlohmann::ordered_json(op_name(options)) : nlohmann::ordered_json();
  json["out_of_place"] = timing_json(options, ranks, row, row.apart);
  json["in_place"] = timing_json(options, ranks, row, row.in_place);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Chart bench_chart(const BenchOptions& options, const Placement& placement, const std::vector<Row>& rows) {
  Chart chart;
  chart.title = what_and_where(options, placement);
  ChartPanel bandwidth{"bus bandwidth", "GB/s", true, {}};
  ChartPanel time{"time of a call", "µs", true, {}};
  const auto line_of = [](ChartPanel& panel, const std::string& name) -> ChartLine& {
    const auto known =
        std::find_if(panel.lines.begin(), panel.lines.end(), [&](const auto& l) { return l.name == name; });
    return known != panel.lines.end() ? *known : panel.lines.emplace_back(ChartLine{name, {}});
  };
  for (const bool in_place : {false, true}) {
    for (const Row& row : rows) {
      const auto& timing = in_place ? row.in_place : row.apart;
      if (!timing || row.bytes == 0) {
        continue;
      }
      // For gradients, each way to reduce them is one point; all points have the same size.
      const std::string name = options.measure == Measure::kGradients ? row.what
                               : in_place                             ? "in place"
                                                                      : "out of place";
      const auto bytes = static_cast<double>(row.bytes);
      const double speed = busbw(options, placement.size, row, *timing) / 1e9;
      line_of(bandwidth, name).points.emplace_back(bytes, speed);
      line_of(time, name).points.emplace_back(bytes, timing->median_s * 1e6);
    }
  }
  chart.panels = {std::move(bandwidth), std::move(time)};
  return chart;
}

}  // namespace hvd::launch
