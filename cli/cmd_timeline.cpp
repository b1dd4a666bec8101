#include <cerrno>
#include <fstream>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "launcher/timeline/timeline_reader.h"
#include "launcher/timeline/timeline_tables.h"
#include "launcher/timeline/trace_events.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

constexpr std::size_t kMostRows = 10;

nlohmann::ordered_json json_of(const TimelineSummary::Share& share) {
  nlohmann::ordered_json object;
  if (!share.name.empty()) {
    object["name"] = share.name;
  }
  if (!share.operation.empty()) {
    object["operation"] = share.operation;
  }
  object["count"] = share.count;
  object["bytes"] = share.bytes;
  object["waited_s"] = share.waited_s;
  object["worked_s"] = share.worked_s;
  return object;
}

std::string json_of(const TimelineSummary& summary) {
  nlohmann::ordered_json all = json_of(summary.all);
  all["seconds"] = summary.seconds;
  all["is_cut"] = summary.is_cut;
  all["dropped"] = summary.dropped;
  for (const char* key : {"operations", "ranks", "phases", "tensors", "unfinished"}) {
    all[key] = nlohmann::ordered_json::array();
  }
  for (const TimelineSummary::Share& share : summary.operations) {
    all["operations"].push_back(json_of(share));
  }
  for (const TimelineSummary::Rank& rank : summary.ranks) {
    all["ranks"].push_back(
        {{"rank", rank.rank}, {"last", rank.last}, {"waited_for_s", rank.waited_for_s}, {"behind_s", rank.behind_s}});
  }
  for (const TimelineSummary::Phase& phase : summary.phases) {
    all["phases"].push_back({{"name", phase.name}, {"count", phase.count}, {"seconds", phase.seconds}});
  }
  for (const TimelineSummary::Share& share : summary.tensors) {
    all["tensors"].push_back(json_of(share));
  }
  for (const TimelineSummary::Unfinished& each : summary.unfinished) {
    all["unfinished"].push_back({{"name", each.name},
                                 {"operation", each.operation},
                                 {"seconds", each.seconds},
                                 {"is_waiting", each.is_waiting},
                                 {"missing_ranks", each.missing}});
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<TimelineSummary> summary_of(std::istream& in) {
  TimelineReader reader;
  HVD_TRY_ASSIGN(const bool is_cut, read_trace(in, [&reader](const TraceEvent& event) { reader.add(event); }));
  return reader.finish(is_cut);
}

}  // namespace

Result<int> show_timeline(const TimelineOptions& options) {
  const bool is_input = options.file == "-";
  std::ifstream file;
  if (!is_input) {
    file.open(options.file);
    if (!file.is_open()) {
      const Error why = Error::from_errno(options.file);
      return Error(Code::kNotFound, why.message());
    }
  }
  const std::string name = is_input ? "standard input" : options.file;
  const auto summary = summary_of(is_input ? std::cin : file);
  if (!summary.ok()) {
    return summary.error().with_context(name);
  }
  std::cout << (options.json ? json_of(summary.value()) + "\n" : timeline_tables(name, summary.value(), kMostRows));
  return 0;
}

}  // namespace hvd::cli
