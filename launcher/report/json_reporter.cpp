#include "launcher/report/json_reporter.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>
#include <time.h>

#include "launcher/job/hidden_texts.h"
#include "launcher/report/summary.h"
#include "launcher/report/traceback.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Json = nlohmann::ordered_json;

// Returns "2026-11-22T01:02:03.456Z".
std::string utc_text(std::chrono::system_clock::time_point at) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
  const time_t seconds = static_cast<time_t>(ms / 1000);
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  const std::size_t size = ::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  return std::string(text.data(), size) + formatted(".%03dZ", static_cast<int>(ms % 1000));
}

Json event(const char* name, const TimeOfDay& time) {
  Json json;
  json["event"] = name;
  json["time"] = utc_text(time());
  return json;
}

// Names and texts of an event come from the user, from ranks and from nodes, but for these.
bool is_own_word(const std::string& key) {
  return key == "event" || key == "time" || key == "level";
}

std::string line_of(Json json, const std::vector<std::string>& hidden) {
  for (auto& [key, value] : json.items()) {
    if (!is_own_word(key)) {
      mask_values(value, hidden);
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double rounded_seconds(Duration duration) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) / 1000;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      break;
  }
  return "error";
}

Json ranks_of(const NodePlan& node) {
  Json ranks = Json::array();
  for (const RankPlan& rank : node.ranks) {
    ranks.push_back(rank.rank);
  }
  return ranks;
}

void put_node(Json& json, const Placement& placement, int node) {
  json["node"] = node;
  json["host"] = placement.nodes[static_cast<std::size_t>(node)].host.name;
}

void put_rank(Json& json, const Placement& placement, int rank) {
  json["rank"] = rank;
  put_node(json, placement, placement.node_of(rank).index);
}

void put_status(Json& json, const ExitStatus& status, const ExitDetail& detail) {
  const bool is_signal = status.kind == ExitStatus::Kind::kSignalled;
  json["exit_code"] = status.shell_code();
  json["signal"] = is_signal ? Json(status.value) : Json();
  json["signal_name"] = is_signal ? Json(signal_name(status.value)) : Json();
  json["core_dumped"] = status.has_core;
  json["core_place"] = detail.core;
  json["out_of_memory"] = status.out_of_memory;
  json["memory_evidence"] = detail.memory;
}

Json counts_of(const JobState& state) {
  const RankCounts counts = count_ranks(state);
  return Json{{"succeeded", counts.succeeded},
              {"failed", counts.failed},
              {"lost", counts.lost},
              {"not_started", counts.not_started},
              {"released", counts.released}};
}

}  // namespace

Lines JsonReporter::on(const JobNews& news) {
  return std::visit([this](const auto& each) { return lines_of(each); }, news);
}

Lines JsonReporter::lines_of(const news::Begun& begun) const {
  Json json = event("job_started", time_);
  json["version"] = HVD_VERSION;
  json["job"] = begun.job_id;
  json["size"] = placement_.size;
  json["argv"] = spec_.argv;
  json["cwd"] = spec_.cwd;
  json["nodes"] = Json::array();
  for (const NodePlan& node : placement_.nodes) {
    Json entry;
    put_node(entry, placement_, node.index);
    entry["transport"] = transport_name(choose_transport(spec_, node.host));
    entry["ranks"] = ranks_of(node);
    json["nodes"].push_back(std::move(entry));
  }
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::NodeReady& ready) const {
  Json json = event("node_ready", time_);
  put_node(json, placement_, ready.node);
  json["agent_pid"] = ready.ready.pid;
  json["cores"] = ready.ready.cores.size();
  json["gpus"] = ready.ready.gpus.size();
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::NodeAway& gone) const {
  Json json = event("node_away", time_);
  put_node(json, placement_, gone.node);
  json["message"] = gone.why.message();
  json["patience_seconds"] = rounded_seconds(gone.patience);
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::NodeBack& back) const {
  Json json = event("node_back", time_);
  put_node(json, placement_, back.node);
  json["away_seconds"] = rounded_seconds(back.away);
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::NodeLost& lost) const {
  Json json = event("node_lost", time_);
  put_node(json, placement_, lost.node);
  json["message"] = lost.why.message();
  json["ranks"] = ranks_of(placement_.nodes[static_cast<std::size_t>(lost.node)]);
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::RankStarted& started) const {
  Json json = event("rank_started", time_);
  put_rank(json, placement_, started.rank);
  json["pid"] = started.pid;
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::RankEnded& ended) const {
  Json json = event("rank_ended", time_);
  put_rank(json, placement_, ended.rank);
  put_status(json, ended.status, ended.detail);
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::RankRestarted& restarted) const {
  Json json = event("rank_restarted", time_);
  put_rank(json, placement_, restarted.rank);
  json["message"] = restarted.cause;
  json["restart"] = restarted.number;
  json["limit"] = restarted.limit;
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::AllRestarted& restarted) const {
  Json json = event("job_restarted", time_);
  std::string text;
  for (const std::string& line : restarted.cause.lines) {
    text += (text.empty() ? "" : "; ") + line;
  }
  json["message"] = text;
  json["restart"] = restarted.number;
  json["limit"] = restarted.limit;
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::GenerationFormed& formed) const {
  Json json = event("generation", time_);
  json["generation"] = formed.generation.number + 1;
  json["members"] = formed.generation.members;
  json["newcomers"] = formed.generation.newcomers;
  json["released"] = formed.generation.released;
  json["seconds"] = std::chrono::duration<double>(formed.pause).count();
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::NodeJoining& joining) const {
  Json json = event("node_joining", time_);
  put_node(json, placement_, joining.node);
  json["ranks"] = ranks_of(placement_.nodes[static_cast<std::size_t>(joining.node)]);
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const Note& note) const {
  Json json = event("note", time_);
  json["level"] = level_name(note.level);
  if (note.node >= 0) {
    put_node(json, placement_, note.node);
  }
  json["message"] = note.text;
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::EngineLine& said) const {
  Json json = event("engine_line", time_);
  json["engine"] = said.engine;
  json["message"] = said.line;
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::Failing& failing) const {
  Json json = event("rank_failing", time_);
  put_rank(json, placement_, failing.cause.rank);
  json["message"] = failing.cause.lines.front();
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const Failure& failure) const {
  Json json = event("failure", time_);
  json["causes"] = failure.cause.lines;
  json["exit_code"] = failure.cause.exit_code;
  json["before_ranks"] = failure.is_before_ranks;
  if (failure.cause.rank >= 0) {
    put_rank(json, placement_, failure.cause.rank);
    json["last_errors"] = failure.last_errors;
    const auto traceback = find_traceback(failure.last_errors);
    json["exception"] = traceback ? Json(traceback->exception) : Json();
    json["frame"] = traceback ? Json(traceback->frame) : Json();
    json["kept_in"] = failure.kept_in;
  }
  return {line_of(std::move(json), spec_.hidden)};
}

Lines JsonReporter::lines_of(const news::Refused& refused) const {
  return json_refusal(refused.why, refused.exit_code, time_, spec_.hidden);
}

Lines JsonReporter::lines_of(const news::Ended& ended) const {
  Json json = event("job_ended", time_);
  json["exit_code"] = ended.state.exit_code();
  json["seconds"] = rounded_seconds(ended.took);
  json["ranks"] = counts_of(ended.state);
  json["output_kept"] = ended.state.has_kept_all();
  if (ended.restarts > 0) {
    json["restarts"] = ended.restarts;
  }
  return {line_of(std::move(json), spec_.hidden)};
}

std::string JsonReporter::status() const {
  return "";
}

Lines json_refusal(const Error& why, int exit_code, const TimeOfDay& time, const std::vector<std::string>& hidden) {
  Json failure = event("failure", time);
  failure["before_ranks"] = false;
  failure["causes"] = Json::array({why.message()});
  failure["exit_code"] = exit_code;
  Json end = event("job_ended", time);
  end["exit_code"] = exit_code;
  end["seconds"] = 0.0;
  return {line_of(std::move(failure), hidden), line_of(std::move(end), hidden)};
}

std::string json_log_line(LogLevel level, std::string_view message, const TimeOfDay& time,
                          const std::vector<std::string>& hidden) {
  Json json = event("log", time);
  json["level"] = level_name(level);
  json["message"] = message;
  return line_of(std::move(json), hidden);
}

}  // namespace hvd::launch
