#include "launcher/page/job_history.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <time.h>

#include "launcher/page/json.h"
#include "launcher/page/page_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostEvents = 500;
// Numbers beyond these come from no job, and would fill the memory.
constexpr long long kLastNode = 1LL << 17;
constexpr long long kLastRank = 1LL << 20;

std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

long long number_in(const Json& json, const char* key, long long otherwise = 0) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<long long>() : otherwise;
}

double seconds_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

std::vector<std::string> texts_in(const Json& json, const char* key) {
  std::vector<std::string> texts;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) {
    return texts;
  }
  for (const Json& each : *found) {
    texts.push_back(each.is_string() ? each.get<std::string>() : each.dump());
  }
  return texts;
}

// Returns milliseconds since 1970 of "2026-11-22T01:02:03.456Z"; nullopt: it is not such a text.
std::optional<long long> milliseconds_of(const std::string& text) {
  tm utc{};
  int ms = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
                  &utc.tm_min, &utc.tm_sec, &ms) != 7) {
    return std::nullopt;
  }
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return static_cast<long long>(::timegm(&utc)) * 1000 + ms;
}

}  // namespace

struct JobHistory::Event {
  std::string name;
  double at = 0;
  Json json;
};

void JobHistory::add(std::string_view line) {
  if (line.empty() || line.front() != '{') {
    return;
  }
  Event event;
  event.json = Json::parse(line, nullptr, false);
  if (!event.json.is_object()) {
    return;
  }
  event.name = text_in(event.json, "event");
  const auto ms = milliseconds_of(text_in(event.json, "time"));
  if (event.name.empty() || !ms) {
    return;
  }
  const bool is_new_job = event.name == "job_started" && !std::exchange(restarts_, false);
  if (is_new_job || began_.empty()) {  // a job that is refused has no start
    *this = JobHistory();
    began_ms_ = *ms;
    began_ = text_in(event.json, "time");
  }
  // Clocks may be set back; what comes later is never drawn before what came earlier.
  latest_ = std::max(latest_, static_cast<double>(*ms - began_ms_) / 1000);
  event.at = latest_;
  if (event.name == "job_started") {
    begin(event);
  } else if (event.name.starts_with("node_")) {
    take_node_event(event);
  } else if (event.name.starts_with("rank_")) {
    take_rank_event(event);
  } else if (event.name == "generation") {
    take_generation(event);
  } else if (event.name == "failure") {
    take_failure(event);
  } else if (event.name == "job_restarted") {
    restarts_ = true;
    failure_.reset();
    const auto number = number_in(event.json, "restart");
    note(HistoryEvent::Tone::kBad,
         text_in(event.json, "message") + (number == 0
                                               ? "; the job starts without it"
                                               : "; all ranks are started anew (" + std::to_string(number) + " of " +
                                                     std::to_string(number_in(event.json, "limit")) + ")"));
  } else if (event.name == "note") {
    const std::string host = text_in(event.json, "host");
    note(text_in(event.json, "level") == "error" ? HistoryEvent::Tone::kBad : HistoryEvent::Tone::kWarning,
         (host.empty() ? "" : host + ": ") + text_in(event.json, "message"));
  } else if (event.name == "engine_line") {
    note(HistoryEvent::Tone::kPlain, text_in(event.json, "engine") + ": " + text_in(event.json, "message"));
  } else if (event.name == "job_ended") {
    take_end(event);
  }
}

void JobHistory::begin(const Event& event) {
  job_ = text_in(event.json, "job");
  version_ = text_in(event.json, "version");
  cwd_ = text_in(event.json, "cwd");
  argv_ = texts_in(event.json, "argv");
  nodes_.clear();  // a job that begins anew may have other hosts
  const auto nodes = event.json.find("nodes");
  if (nodes == event.json.end() || !nodes->is_array()) {
    return;
  }
  std::size_t ranks = 0;
  for (const Json& each : *nodes) {
    if (!each.is_object()) {
      continue;
    }
    const Event of_node{"", event.at, each};
    HistoryNode* const node = node_of(of_node);
    if (node == nullptr) {
      continue;
    }
    node->transport = text_in(each, "transport");
    for (const std::string& rank : texts_in(each, "ranks")) {
      const auto number = parse_number<long long>(rank, 0, kLastRank);
      Json of_rank = each;
      of_rank["rank"] = number.value_or(-1);
      rank_of({"", event.at, std::move(of_rank)});
      ranks = std::max(ranks, static_cast<std::size_t>(number.value_or(-1) + 1));
    }
  }
  ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(ranks), ranks_.end());  // it may have fewer of them too
}

HistoryNode* JobHistory::node_of(const Event& event) {
  const long long number = number_in(event.json, "node", -1);
  if (number < 0 || number > kLastNode) {
    return nullptr;
  }
  const auto index = static_cast<std::size_t>(number);
  if (index >= nodes_.size()) {
    nodes_.resize(index + 1);
  }
  if (const std::string host = text_in(event.json, "host"); !host.empty()) {
    nodes_[index].host = host;
  }
  return &nodes_[index];
}

HistoryRank* JobHistory::rank_of(const Event& event) {
  const long long number = number_in(event.json, "rank", -1);
  if (number < 0 || number > kLastRank) {
    return nullptr;
  }
  const auto index = static_cast<std::size_t>(number);
  while (ranks_.size() <= index) {
    ranks_.push_back({static_cast<int>(ranks_.size()), 0, {}});
  }
  if (node_of(event) != nullptr) {
    ranks_[index].node = static_cast<int>(number_in(event.json, "node"));
  }
  return &ranks_[index];
}

void JobHistory::take_node_event(const Event& event) {
  HistoryNode* const node = node_of(event);
  if (node == nullptr) {
    return;
  }
  const std::string message = text_in(event.json, "message");
  if (event.name == "node_ready") {
    node->cores = static_cast<int>(number_in(event.json, "cores"));
    node->gpus = static_cast<int>(number_in(event.json, "gpus"));
    node->ready = event.at;
  } else if (event.name == "node_joining") {
    note(HistoryEvent::Tone::kPlain, node->host + " joins");
  } else if (event.name == "node_away") {
    node->away.push_back({event.at, std::nullopt});
    note(HistoryEvent::Tone::kWarning, node->host + ": the connection broke: " + message);
  } else if (event.name == "node_back" || event.name == "node_lost") {
    if (!node->away.empty() && !node->away.back().to) {
      node->away.back().to = event.at;
    }
    if (event.name == "node_back") {
      note(HistoryEvent::Tone::kPlain,
           node->host + " is back after " + duration_text(seconds_in(event.json, "away_seconds")));
      return;
    }
    node->is_lost = true;
    note(HistoryEvent::Tone::kBad, node->host + " is lost: " + message);
    for (HistoryRank& rank : ranks_) {
      if (&nodes_[static_cast<std::size_t>(rank.node)] == node && !rank.processes.empty() &&
          !rank.processes.back().time.to) {
        rank.processes.back().time.to = event.at;
        rank.processes.back().end = HistoryProcess::End::kLost;
      }
    }
  }
}

void JobHistory::take_rank_event(const Event& event) {
  HistoryRank* const rank = rank_of(event);
  if (rank == nullptr) {
    return;
  }
  const std::string who = "rank " + std::to_string(rank->rank);
  if (event.name == "rank_started") {
    rank->processes.push_back({{event.at, std::nullopt}, number_in(event.json, "pid"), {}, {}});
  } else if (event.name == "rank_ended") {
    if (rank->processes.empty()) {
      rank->processes.push_back({{event.at, std::nullopt}, 0, {}, {}});
    }
    HistoryProcess& process = rank->processes.back();
    const long long code = number_in(event.json, "exit_code");
    const std::string signal = text_in(event.json, "signal_name");
    process.time.to = event.at;
    process.end = code == 0 ? HistoryProcess::End::kSucceeded : HistoryProcess::End::kFailed;
    process.how = signal.empty() ? "exited with code " + std::to_string(code) : "was killed by " + signal;
  } else if (event.name == "rank_restarted") {
    note(HistoryEvent::Tone::kBad, text_in(event.json, "message") + "; " + who + " is started again (" +
                                       std::to_string(number_in(event.json, "restart")) + " of " +
                                       std::to_string(number_in(event.json, "limit")) + ")");
  } else if (event.name == "rank_failing") {
    note(HistoryEvent::Tone::kBad, text_in(event.json, "message"));
  }
}

void JobHistory::take_generation(const Event& event) {
  const int number = static_cast<int>(number_in(event.json, "generation"));
  generations_.push_back({event.at, number});
  const double pause = seconds_in(event.json, "seconds");
  note(HistoryEvent::Tone::kPlain, "generation " + std::to_string(number) + ": " +
                                       counted(texts_in(event.json, "members").size(), "rank") +
                                       (pause > 0 ? ", after a pause of " + duration_text(pause) : ""));
}

void JobHistory::take_failure(const Event& event) {
  HistoryFailure failure;
  failure.at = event.at;
  failure.causes = texts_in(event.json, "causes");
  failure.exit_code = static_cast<int>(number_in(event.json, "exit_code"));
  failure.rank = static_cast<int>(std::clamp<long long>(number_in(event.json, "rank", -1), -1, kLastRank));
  failure.host = text_in(event.json, "host");
  failure.exception = text_in(event.json, "exception");
  failure.frame = text_in(event.json, "frame");
  failure.last_errors = texts_in(event.json, "last_errors");
  failure.kept_in = text_in(event.json, "kept_in");
  note(HistoryEvent::Tone::kBad, "first failure: " + (failure.causes.empty() ? "unknown" : failure.causes.front()));
  failure_ = std::move(failure);
}

void JobHistory::take_end(const Event& event) {
  HistoryEnd end;
  end.exit_code = static_cast<int>(number_in(event.json, "exit_code"));
  if (const auto ranks = event.json.find("ranks"); ranks != event.json.end() && ranks->is_object()) {
    end.has_counts = true;
    end.succeeded = static_cast<int>(number_in(*ranks, "succeeded"));
    end.failed = static_cast<int>(number_in(*ranks, "failed"));
    end.lost = static_cast<int>(number_in(*ranks, "lost"));
    end.not_started = static_cast<int>(number_in(*ranks, "not_started"));
    end.released = static_cast<int>(number_in(*ranks, "released"));
  }
  const auto kept = event.json.find("output_kept");
  end.is_output_kept = kept == event.json.end() || *kept != false;
  end_ = end;
  for (HistoryRank& rank : ranks_) {
    if (!rank.processes.empty() && !rank.processes.back().time.to) {
      rank.processes.back().time.to = event.at;
      rank.processes.back().end = HistoryProcess::End::kLost;
    }
  }
}

void JobHistory::note(HistoryEvent::Tone tone, std::string text) {
  ++count_of_events_;
  if (events_.size() < kMostEvents) {
    events_.push_back({latest_, tone, std::move(text)});
  }
}

}  // namespace hvd::launch
