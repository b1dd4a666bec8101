#include "launcher/timeline/timeline_reader.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include <nlohmann/json.hpp>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kNegotiate = "NEGOTIATE_";
constexpr double kMicro = 1e-6;
constexpr int kMostRank = 1'000'000'000;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::int64_t number_in(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}

std::string text_in(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Returns the bytes of an element of "float32"; 0: unknown.
std::uint64_t bytes_of(const std::string& dtype) {
  struct Kind {
    std::string_view word;
    std::uint64_t bytes;
  };
  static constexpr std::array<Kind, 6> kKinds = {
      {{"64", 8}, {"32", 4}, {"16", 2}, {"int8", 1}, {"bool", 1}, {"byte", 1}}};
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&dtype](const Kind& kind) { return dtype.find(kind.word) != std::string::npos; });
  return found == kKinds.end() ? 0 : found->bytes;
}

// Returns how many elements "[17, 3]" has; 0 if it is no shape.
std::uint64_t elements_of(const std::string& shape) {
  if (shape.size() < 2 || shape.front() != '[' || shape.back() != ']') {
    return 0;
  }
  std::uint64_t product = 1;
  std::string_view rest = std::string_view(shape).substr(1, shape.size() - 2);
  while (!trimmed(rest).empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const auto size = parse_number<std::uint64_t>(trimmed(rest.substr(0, end)));
    if (!size || (*size != 0 && product > UINT64_MAX / *size)) {
      return 0;
    }
    product *= *size;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return product;
}

std::uint64_t bytes_in(const Json& event) {
  const auto arguments = event.find("args");
  if (arguments == event.end() || !arguments->is_object()) {
    return 0;
  }
  return bytes_of(lower(text_in(*arguments, "dtype"))) * elements_of(text_in(*arguments, "shape"));
}

// Returns what follows "[" or {"traceEvents": [ where the events stand a line each; any other first line as it is.
std::string_view without_opening(std::string_view text) {
  if (text.ends_with(']') || text.ends_with("]}") || text.starts_with("{\"name\"")) {
    return text;
  }
  std::string_view rest = text;
  for (const std::string_view part : {"{", "\"traceEvents\"", ":", "["}) {
    rest = rest.starts_with(part) ? trimmed(rest.substr(part.size())) : rest;
  }
  return rest.empty() || rest.starts_with('{') ? rest : text;
}

double time_of(const TimelineSummary::Share& share) {
  return share.waited_s + share.worked_s;
}

void sort_by_time(std::vector<TimelineSummary::Share>& shares) {
  std::stable_sort(shares.begin(), shares.end(), [](const TimelineSummary::Share& a, const TimelineSummary::Share& b) {
    return time_of(a) > time_of(b);
  });
}

}  // namespace

Result<void> TimelineReader::add_line(std::string_view line) {
  ++line_;
  std::string_view text = trimmed(line);
  if (!has_begun_ && !text.empty()) {
    has_begun_ = true;
    text = without_opening(text);
  }
  while (text.ends_with(',')) {
    text = trimmed(text.substr(0, text.size() - 1));
  }
  if (line_ > 1 && !text.starts_with('[') && (text.ends_with(']') || text.ends_with("]}"))) {
    text = trimmed(text.substr(0, text.rfind(']')));
  }
  if (text.empty()) {
    return {};
  }
  const Json value = Json::parse(text, nullptr, false);
  if (broken_line_ != 0) {  // so it was not the end of a file that was cut
    return Error(Code::kInvalid, "line " + std::to_string(broken_line_) + " is not an event of a timeline");
  }
  if (value.is_discarded()) {
    broken_line_ = line_;
    return {};
  }
  return add_events(value);
}

Result<void> TimelineReader::add_events(const Json& value) {
  const Json* events = &value;
  if (value.is_object() && value.contains("traceEvents")) {
    events = &value["traceEvents"];
  }
  if (events->is_object()) {
    add_event(*events);
    return {};
  }
  if (!events->is_array() ||
      !std::all_of(events->begin(), events->end(), [](const Json& e) { return e.is_object(); })) {
    return Error(Code::kInvalid, "line " + std::to_string(line_) + " is not an event of a timeline");
  }
  for (const Json& event : *events) {
    add_event(event);
  }
  return {};
}

void TimelineReader::add_event(const Json& event) {
  const std::string kind = text_in(event, "ph");
  const std::int64_t pid = number_in(event, "pid");
  const std::string name = text_in(event, "name");
  if (kind == "M") {
    if (name == "process_name" && event.contains("args") && event["args"].is_object()) {
      names_[pid] = text_in(event["args"], "name");
    }
    return;
  }
  const auto time = event.find("ts");
  if (time == event.end() || !time->is_number()) {
    return;
  }
  const double at = time->get<double>();
  first_ = first_ < 0 ? at : std::min(first_, at);
  last_ = std::max(last_, at);
  if (kind == "X" && event.contains("dur") && !names_.contains(pid)) {  // a stage between hosts, in a row of its own
    add_stage(name, at, event["dur"]);
    return;
  }
  const bool is_tensor = kind == "B" || kind == "E" || (kind == "X" && names_.contains(pid));
  if (!is_tensor) {
    return;
  }
  Tensor& tensor = tensors_[{pid, number_in(event, "tid")}];
  if (kind == "B") {
    begin(tensor, name, at);
  } else if (kind == "E") {
    end(tensor, at, event);
  } else if (const auto rank = parse_number<int>(name, 0, kMostRank); rank) {
    ask(tensor, *rank, at);
  }
}

void TimelineReader::add_stage(const std::string& name, double at, const Json& duration) {
  const double ended = at + (duration.is_number() ? std::max(0.0, duration.get<double>()) : 0);
  auto& [count, spans] = phases_[name];
  ++count;
  spans.add(at, ended);
  last_ = std::max(last_, ended);
}

void TimelineReader::begin(Tensor& tensor, const std::string& name, double at) {
  if (name.starts_with(kNegotiate)) {
    tensor.asked = Asked();
    tensor.negotiation = Open{name, at};
    tensor.operation = lower(name.substr(kNegotiate.size()));
    return;
  }
  if (!tensor.open.empty() && tensor.open.front().name == name) {  // its end is missing
    end_operation(tensor, tensor.open.front(), at, 0);
    tensor.open.clear();
  }
  if (tensor.open.empty()) {
    tensor.operation = lower(name);
  }
  tensor.open.push_back(Open{name, at});
}

// Horovod's own "E" events have no names: they end what began last.
void TimelineReader::end(Tensor& tensor, double at, const Json& event) {
  const std::string name = text_in(event, "name");
  const bool is_negotiation =
      tensor.negotiation && (name.empty() ? tensor.open.empty() : name == tensor.negotiation->name);
  if (is_negotiation) {
    end_negotiation(tensor, at);
    return;
  }
  auto found = tensor.open.rbegin();
  while (!name.empty() && found != tensor.open.rend() && found->name != name) {
    ++found;
  }
  if (found == tensor.open.rend()) {
    return;  // the timeline was switched on meanwhile
  }
  const Open ended = *found;
  tensor.open.erase(std::prev(found.base()), tensor.open.end());
  if (!tensor.open.empty()) {
    auto& [count, spans] = phases_[ended.name];
    ++count;
    spans.add(ended.at, at);
    return;
  }
  end_operation(tensor, ended, at, bytes_in(event));
}

// What an operation took since all ranks had asked for it is the decision and the work.
void TimelineReader::end_operation(Tensor& tensor, const Open& ended, double at, std::uint64_t bytes) {
  const double began = tensor.known_at < 0 ? ended.at : std::min(tensor.known_at, ended.at);
  tensor.known_at = -1;
  for (Sum* sum : {&tensor.sum, &operations_[lower(ended.name)], &all_}) {
    ++sum->count;
    sum->bytes += bytes;
    sum->worked.add(began, at);
  }
}

void TimelineReader::ask(Tensor& tensor, int rank, double at) {
  Asked& asked = tensor.asked;
  ranks_[rank];
  if (asked.count++ == 0) {
    asked = Asked{at, at, at, rank, 1};
  } else if (at >= asked.last) {
    asked.before_last = asked.last;
    asked.last = at;
    asked.rank = rank;
  } else {
    asked.before_last = std::max(asked.before_last, at);
    asked.first = std::min(asked.first, at);
  }
}

// A small operation may be negotiated and done in one, and then nothing says when each rank asked: all of it counts as
// waiting, for no rank. Of process sets without the rank that writes the timeline there is only the negotiation.
void TimelineReader::end_negotiation(Tensor& tensor, double at) {
  const Asked& asked = tensor.asked;
  const double from = asked.count > 0 ? asked.first : tensor.negotiation->at;
  const double until = asked.count > 0 ? asked.last : at;
  for (Sum* sum : {&tensor.sum, &operations_[tensor.operation], &all_}) {
    sum->waited.add(from, until);
  }
  tensor.known_at = until;
  tensor.negotiation.reset();
  if (asked.count >= 2) {
    Late& late = ranks_[asked.rank];
    ++late.last;
    late.waited_for.add(asked.before_last, asked.last);
  }
}

TimelineSummary::Share TimelineReader::share_of(const Sum& sum) {
  TimelineSummary::Share share;
  share.count = sum.count;
  share.bytes = sum.bytes;
  share.waited_s = sum.waited.total() * kMicro;
  share.worked_s = sum.worked.total() * kMicro;
  return share;
}

Result<TimelineSummary> TimelineReader::finish() {
  if (first_ < 0) {
    return Error(Code::kInvalid, "it has no event of a timeline");
  }
  TimelineSummary summary;
  summary.seconds = (last_ - first_) * kMicro;
  summary.is_cut = broken_line_ != 0;
  summary.all = share_of(all_);
  for (const auto& [name, sum] : operations_) {
    summary.operations.push_back(share_of(sum));
    summary.operations.back().name = name;
  }
  for (const auto& [key, tensor] : tensors_) {
    TimelineSummary::Share share = share_of(tensor.sum);
    if (share.count == 0 && share.waited_s == 0) {
      continue;
    }
    summary.tensors.push_back(std::move(share));
    const auto named = names_.find(key.first);
    summary.tensors.back().name = named == names_.end() ? std::to_string(key.first) : named->second;
    summary.tensors.back().operation = tensor.operation;
  }
  for (const auto& [rank, late] : ranks_) {
    summary.ranks.push_back({rank, late.last, late.waited_for.total() * kMicro});
  }
  for (const auto& [name, phase] : phases_) {
    summary.phases.push_back({name, phase.first, phase.second.total() * kMicro});
  }
  sort_by_time(summary.operations);
  sort_by_time(summary.tensors);
  std::stable_sort(summary.ranks.begin(), summary.ranks.end(),
                   [](const auto& a, const auto& b) { return a.waited_for_s > b.waited_for_s; });
  std::stable_sort(summary.phases.begin(), summary.phases.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return summary;
}

}  // namespace hvd::launch
