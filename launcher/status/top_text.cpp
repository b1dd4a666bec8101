#include "launcher/status/top_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "launcher/report/quantities.h"
#include "launcher/report/text_grid.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using nlohmann::json;

std::string decimal(double value) {
  return formatted(value < 9.95 ? "%.1f" : "%.0f", value);
}

std::string age_text(std::uint64_t ms) {
  const std::chrono::milliseconds age(ms);
  return age < std::chrono::minutes(1) ? seconds_text(age) : minutes_text(age);
}

std::string doing_text(const RankShown& rank) {
  const RuntimeSample& runtime = rank.used.runtime;
  return runtime.operation.empty() ? "" : runtime.operation + " '" + runtime.tensor + "' " + age_text(runtime.for_ms);
}

std::string gpus_text(const std::vector<GpuSample>& gpus) {
  std::string text;
  for (const GpuSample& gpu : gpus) {
    add_to_list(text, std::to_string(gpu.index) + ": " + std::to_string(gpu.busy_percent) + "% " +
                          bytes_text(gpu.memory_bytes));
  }
  return text;
}

GridColumn column(const char* heading, bool is_right, int rank = 0) {
  GridColumn made;
  made.heading = {heading, Tone::kHeading, false};
  made.is_right = is_right;
  made.rank = rank;
  return made;
}

std::vector<std::string> node_lines(const JobPicture& job, std::size_t width, bool color) {
  std::vector<GridColumn> columns = {column("NODE", false), column("CORES", true), column("MEMORY", true),
                                     column("OF", true), column("GPUS", false, 1)};
  for (const NodeShown& node : job.nodes) {
    const Tone tone = node.is_connected ? Tone::kPlain : Tone::kProblem;
    const char* where = node.is_connected ? "" : node.is_away ? " (away)" : " (not connected)";
    const auto cell = [&](const std::string& text) { return GridCell{node.is_sampled ? text : "", tone, false}; };
    columns[0].cells.push_back({shown(node.name) + where, tone, !node.is_connected});
    columns[1].cells.push_back(cell(decimal(node.cores)));
    columns[2].cells.push_back(cell(bytes_text(node.memory_total - std::min(node.memory_free, node.memory_total))));
    columns[3].cells.push_back(cell(bytes_text(node.memory_total)));
    columns[4].cells.push_back(cell(gpus_text(node.gpus)));
  }
  if (std::all_of(job.nodes.begin(), job.nodes.end(), [](const NodeShown& node) { return node.gpus.empty(); })) {
    columns.pop_back();
  }
  return grid_lines(std::move(columns), width, color);
}

std::vector<std::string> rank_lines(const JobPicture& job, std::size_t width, bool color) {
  std::vector<const RankShown*> ranks;
  for (const RankShown& rank : job.ranks) {
    ranks.push_back(&rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const RankShown* a, const RankShown* b) {
    return std::pair(a->odd.empty(), a->rank) < std::pair(b->odd.empty(), b->rank);
  });
  std::vector<GridColumn> columns = {column("RANK", true),       column("NODE", false, 4),  column("STATE", false),
                                     column("CORES", true),      column("MEMORY", true, 2), column("LINE", true, 5),
                                     column("BYTES/S", true, 3), column("DOES", false, 1),  column("DIFFERS", false)};
  for (const RankShown* rank : ranks) {
    const Tone tone = rank->odd.empty() ? Tone::kPlain : Tone::kWarning;
    const auto cell = [&](bool is_known, const std::string& text) {
      return GridCell{is_known ? shown(text) : "", tone, false};
    };
    const bool is_known = rank->is_sampled;
    const bool has_runtime = is_known && rank->used.has_runtime;
    columns[0].cells.push_back({std::to_string(rank->rank), tone, !rank->odd.empty()});
    columns[1].cells.push_back(cell(true, job.nodes[static_cast<std::size_t>(rank->node)].name));
    columns[2].cells.push_back(cell(true, rank->state));
    columns[3].cells.push_back(cell(is_known, decimal(rank->cores)));
    columns[4].cells.push_back(cell(is_known, bytes_text(rank->used.memory_bytes)));
    columns[5].cells.push_back(
        cell(rank->silent_ms >= 0, age_text(static_cast<std::uint64_t>(std::max<std::int64_t>(rank->silent_ms, 0)))));
    columns[6].cells.push_back(cell(has_runtime, bytes_text(static_cast<std::uint64_t>(rank->bytes_per_s))));
    columns[7].cells.push_back(cell(has_runtime, doing_text(*rank)));
    columns[8].cells.push_back(cell(true, rank->odd));
  }
  if (std::none_of(job.ranks.begin(), job.ranks.end(), [](const RankShown& rank) { return rank.used.has_runtime; })) {
    columns.erase(columns.begin() + 6, columns.begin() + 8);  // no libhvd tells what it does
  }
  return grid_lines(std::move(columns), width, color);
}

json json_of(const NodeShown& node) {
  json gpus = json::array();
  for (const GpuSample& gpu : node.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"busy_percent", gpu.busy_percent},
                    {"memory_bytes", gpu.memory_bytes},
                    {"memory_total", gpu.memory_total}});
  }
  json object = {
      {"name", node.name}, {"connected", node.is_connected}, {"away", node.is_away}, {"reconnects", node.reconnects}};
  if (node.is_sampled) {
    object.update({{"cores", node.cores}, {"memory_total", node.memory_total}, {"memory_free", node.memory_free}});
    object["gpus"] = std::move(gpus);
  }
  return object;
}

json json_of(const RankShown& rank) {
  json object = {{"rank", rank.rank},         {"node", rank.node},   {"state", rank.state},
                 {"restarts", rank.restarts}, {"lines", rank.lines}, {"bytes", rank.output_bytes},
                 {"differs", rank.odd}};
  if (rank.silent_ms >= 0) {
    object["silent_s"] = static_cast<double>(rank.silent_ms) / 1000;
  }
  if (rank.is_sampled) {
    object.update({{"cores", rank.cores},
                   {"cpu_s", static_cast<double>(rank.used.cpu_ms) / 1000},
                   {"memory_bytes", rank.used.memory_bytes},
                   {"processes", rank.used.processes}});
  }
  if (rank.is_sampled && (rank.used.has_runtime || !rank.used.runtime.kinds.empty())) {
    const RuntimeSample& runtime = rank.used.runtime;
    json kinds = json::object();
    for (const OperationSample& counts : runtime.kinds) {
      kinds[counts.kind] = {{"operations", counts.operations},
                            {"bytes", counts.bytes},
                            {"lasted_s", static_cast<double>(counts.lasted_us) / 1e6},
                            {"waited_s", static_cast<double>(counts.waited_us) / 1e6}};
    }
    object["libhvd"] = {{"operations", runtime.operations},
                        {"bytes", runtime.bytes},
                        {"bytes_per_s", rank.bytes_per_s},
                        {"operations_per_s", rank.operations_per_s},
                        {"operation", runtime.operation},
                        {"tensor", runtime.tensor},
                        {"for_s", static_cast<double>(runtime.for_ms) / 1000},
                        {"kinds", std::move(kinds)}};
  }
  return object;
}

}  // namespace

std::vector<std::string> top_lines(const JobPicture& job, std::size_t width, bool color) {
  const auto odd =
      std::count_if(job.ranks.begin(), job.ranks.end(), [](const auto& rank) { return !rank.odd.empty(); });
  std::vector<std::string> lines = {"job " + shown(job.id) + ": " + counted(job.ranks.size(), "rank") + " on " +
                                    counted(job.nodes.size(), "node") + ", for " + age_text(job.running_ms) +
                                    (odd == 0   ? ""
                                     : odd == 1 ? "; 1 rank differs from the others"
                                                : "; " + std::to_string(odd) + " ranks differ from the others")};
  for (const auto& part : {node_lines(job, width, color), rank_lines(job, width, color)}) {
    lines.emplace_back();
    lines.insert(lines.end(), part.begin(), part.end());
  }
  return lines;
}

std::string top_json(const JobPicture& job) {
  json object = {{"job", job.id}, {"running_s", static_cast<double>(job.running_ms) / 1000}};
  object["nodes"] = json::array();
  for (const NodeShown& node : job.nodes) {
    object["nodes"].push_back(json_of(node));
  }
  object["ranks"] = json::array();
  for (const RankShown& rank : job.ranks) {
    object["ranks"].push_back(json_of(rank));
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace hvd::launch
