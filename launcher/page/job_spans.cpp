#include "launcher/page/job_spans.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "launcher/page/json.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr int kInternal = 1;  // SPAN_KIND_INTERNAL
constexpr int kFailed = 2;    // STATUS_CODE_ERROR

bool is_hex(std::string_view text, std::size_t size) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == size && std::all_of(text.begin(), text.end(), is_digit) &&
         text.find_first_not_of('0') != std::string_view::npos;
}

// Returns 16 hexadecimal digits that are the same for the same text: FNV-1a of 64 bits.
std::string id_of(const std::string& text) {
  constexpr std::uint64_t kBasis = 0xcbf29ce484222325;
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = kBasis;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  }
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4U) {
    *digit = "0123456789abcdef"[hash & 15U];
  }
  return digits;
}

Json attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

Json attribute(const char* key, long long value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};  // OTLP writes 64 bits as text
}

class SpanWriter {
 public:
  explicit SpanWriter(const SpanPlace& place) : place_(place) {}

  // Adds a span of `history` between two of its moments; returns its id.
  std::string add(const JobHistory& history, const std::string& parent, const std::string& name, double from, double to,
                  Json attributes) {
    const std::string id = id_of(place_.trace + "/" + std::to_string(spans_.size()));
    Json span = {{"traceId", place_.trace}, {"spanId", id}};
    if (!parent.empty()) {
      span["parentSpanId"] = parent;
    }
    span["name"] = name;
    span["kind"] = kInternal;
    span["startTimeUnixNano"] = nanoseconds(history, from);
    span["endTimeUnixNano"] = nanoseconds(history, std::max(from, to));
    span["attributes"] = std::move(attributes);
    spans_.push_back(std::move(span));
    return id;
  }
  void fail(const std::string& why) { spans_.back()["status"] = {{"code", kFailed}, {"message", why}}; }
  [[nodiscard]] const Json& spans() const { return spans_; }

 private:
  static std::string nanoseconds(const JobHistory& history, double at) {
    const auto ms = history.began_ms() + static_cast<long long>(std::llround(at * 1000));
    return std::to_string(ms) + "000000";
  }

  const SpanPlace& place_;
  Json spans_ = Json::array();
};

std::string command_of(const JobHistory& history) {
  std::string words;
  for (const std::string& word : history.argv()) {
    add_to_list(words, word, " ");
  }
  return words;
}

void add_step(SpanWriter& writer, const JobSpanStep& step, const std::string& parent) {
  const JobHistory& history = step.history;
  Json attributes =
      Json::array({attribute("hvdrun.job", history.job()), attribute("process.command_line", command_of(history)),
                   attribute("hvdrun.ranks", static_cast<long long>(history.ranks().size()))});
  if (history.end()) {
    attributes.push_back(attribute("hvdrun.exit_code", history.end()->exit_code));
  }
  const std::string own = writer.add(history, parent, step.name, 0, history.latest(), std::move(attributes));
  if (history.failure()) {
    const auto& causes = history.failure()->causes;
    writer.fail(causes.empty() ? "failed" : causes.front());
  } else if (history.end() && history.end()->exit_code != 0) {
    writer.fail("exit code " + std::to_string(history.end()->exit_code));
  }
  for (const HistoryNode& node : history.nodes()) {
    if (node.ready) {
      writer.add(history, own, "start of " + node.host, 0, *node.ready,
                 Json::array({attribute("host.name", node.host), attribute("hvdrun.transport", node.transport)}));
    }
    for (const HistorySpan& away : node.away) {
      writer.add(history, own, node.host + " not reached", away.from, away.to.value_or(history.latest()),
                 Json::array({attribute("host.name", node.host)}));
    }
  }
  for (const HistoryRank& rank : history.ranks()) {
    const auto node = static_cast<std::size_t>(rank.node);
    const std::string host = node < history.nodes().size() ? history.nodes()[node].host : "";
    for (const HistoryProcess& process : rank.processes) {
      writer.add(history, own, "rank " + std::to_string(rank.rank), process.time.from,
                 process.time.to.value_or(history.latest()),
                 Json::array({attribute("hvdrun.rank", rank.rank), attribute("host.name", host),
                              attribute("process.pid", process.pid)}));
      if (process.end == HistoryProcess::End::kFailed || process.end == HistoryProcess::End::kLost) {
        writer.fail(process.how.empty() ? "lost with its host" : process.how);
      }
    }
  }
}

}  // namespace

SpanPlace span_place_of(const std::string& traceparent) {
  constexpr std::size_t kTrace = 3;
  constexpr std::size_t kParent = 36;
  const std::string_view text = traceparent;
  const bool has_form = text.size() >= 55 && text[2] == '-' && text[kParent - 1] == '-' && text[52] == '-';
  if (!has_form || !is_hex(text.substr(kTrace, 32), 32) || !is_hex(text.substr(kParent, 16), 16)) {
    return {};
  }
  return {std::string(text.substr(kTrace, 32)), std::string(text.substr(kParent, 16))};
}

std::string job_spans(const std::vector<JobSpanStep>& steps, const SpanPlace& place) {
  SpanWriter writer(place);
  std::string parent = place.parent;
  if (steps.size() > 1) {
    const JobHistory& first = steps.front().history;
    const JobHistory& last = steps.back().history;
    const double end = static_cast<double>(last.began_ms() - first.began_ms()) / 1000 + last.latest();
    parent = writer.add(first, parent, "hvdrun", 0, end, Json::array({attribute("hvdrun.job", last.job())}));
  }
  for (const JobSpanStep& step : steps) {
    add_step(writer, step, parent);
  }
  const std::string version = steps.empty() ? "" : steps.back().history.version();
  const Json resource = {
      {"attributes", Json::array({attribute("service.name", "hvdrun"), attribute("service.version", version)})}};
  const Json scope = {{"scope", {{"name", "hvdrun"}, {"version", version}}}, {"spans", writer.spans()}};
  const Json document = {
      {"resourceSpans", Json::array({{{"resource", resource}, {"scopeSpans", Json::array({scope})}}})}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launch
