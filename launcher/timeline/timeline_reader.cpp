#include "launcher/timeline/timeline_reader.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kNegotiate = "NEGOTIATE_";
constexpr std::string_view kJoin = "join";
constexpr double kMicro = 1e-6;
constexpr int kMostRank = 1'000'000'000;

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
    const auto size = parse_number<std::uint64_t>(trimmed(take_until(rest, ',')));
    if (!size || (*size != 0 && product > UINT64_MAX / *size)) {
      return 0;
    }
    product *= *size;
  }
  return product;
}

std::uint64_t bytes_in(const TraceEvent& event) {
  return bytes_of(lowered(event.dtype)) * elements_of(event.shape);
}

// Returns "3" of "gradient of process set 3", as libhvd names tensors; empty: the set of all ranks.
std::string set_of(const std::string& tensor) {
  constexpr std::string_view kOfSet = " of process set ";
  const std::size_t at = tensor.rfind(kOfSet);
  const std::string_view set = at == std::string::npos ? "" : std::string_view(tensor).substr(at + kOfSet.size());
  return parse_number<int>(set, 0) ? std::string(set) : "";
}

double time_of(const TimelineSummary::Share& share) {
  return share.waited_s + share.worked_s;
}

// The longest stand first.
template <typename Row, typename Time>
void sort_by_time(std::vector<Row>& rows, Time time) {
  std::stable_sort(rows.begin(), rows.end(), [&time](const Row& a, const Row& b) { return time(a) > time(b); });
}

}  // namespace

void TimelineReader::add(const TraceEvent& event) {
  if (event.phase == "M") {
    is_timeline_ = is_timeline_ || event.name == "start_time";
    if (event.name == "process_name") {
      Tensor& tensor = tensors_[event.pid];
      tensor.name = event.own_name;
      tensor.is_named = true;
    }
    return;
  }
  if (!event.at) {
    return;
  }
  dropped_ += event.name == "DROPPED" ? event.records : 0;
  const double at = *event.at;
  told_until_ = std::max(told_until_, at);
  const auto named = tensors_.find(event.pid);
  const bool has_name = named != tensors_.end() && named->second.is_named;
  const bool is_phase = event.phase == "B" || event.phase == "E";
  const bool is_stage = event.phase == "X" && !has_name && event.duration;  // between hosts, in a row of its own
  if (!is_phase && !is_stage && !(event.phase == "X" && has_name)) {
    return;
  }
  first_ = first_ < 0 ? at : std::min(first_, at);
  last_ = std::max(last_, at);
  if (is_stage) {
    add_stage(event, at);
    return;
  }
  Tensor& tensor = tensors_[event.pid];
  if (event.phase == "B") {
    is_timeline_ = is_timeline_ || has_name || event.name.starts_with(kNegotiate);
    begin(tensor, event.name, at);
  } else if (event.phase == "E") {
    end(tensor, at, event);
  } else if (const auto rank = parse_number<int>(event.name, 0, kMostRank); rank) {
    tensor.asked.push_back({*rank, at});
    sets_[set_of(tensor.name)].insert(*rank);
    ranks_[*rank];
  }
}

void TimelineReader::add_stage(const TraceEvent& event, double at) {
  const double ended = at + std::max(0.0, *event.duration);
  auto& [count, spans] = phases_[event.name];
  ++count;
  spans.add(at, ended);
  last_ = std::max(last_, ended);
}

void TimelineReader::begin(Tensor& tensor, const std::string& name, double at) {
  if (name.starts_with(kNegotiate)) {
    count_elsewhere(tensor);
    tensor.asked.clear();
    tensor.negotiation = Open{name, at};
    tensor.operation = lowered(name.substr(kNegotiate.size()));
    return;
  }
  if (!tensor.open.empty() && tensor.open.front().name == name) {  // its end is missing
    end_operation(tensor, tensor.open.front(), at, 0);
    tensor.open.clear();
  }
  if (tensor.open.empty()) {
    tensor.operation = lowered(name);
  }
  tensor.open.push_back(Open{name, at});
}

// Horovod's own "E" events have no names: they end what began last.
void TimelineReader::end(Tensor& tensor, double at, const TraceEvent& event) {
  const std::string& name = event.name;
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
  for (Sum* sum : {&tensor.sum, &operations_[lowered(ended.name)], &all_}) {
    ++sum->count;
    sum->bytes += bytes;
    sum->worked.add(began, at);
  }
}

void TimelineReader::add_wait(Tensor& tensor, double from, double until) {
  tensor.sum.waited.add(from, until);
  operations_[tensor.operation].waited.add(from, until);
  if (tensor.operation != kJoin) {
    all_.waited.add(from, until);
  }
}

// A small operation may be negotiated and done in one, and then nothing says when each rank asked: all of it counts as
// waiting, for no rank.
void TimelineReader::end_negotiation(Tensor& tensor, double at) {
  std::vector<Asked>& asked = tensor.asked;
  std::stable_sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) { return a.at < b.at; });
  const double from = asked.empty() ? tensor.negotiation->at : asked.front().at;
  const double until = asked.empty() ? at : asked.back().at;
  add_wait(tensor, from, until);
  tensor.known_at = until;
  tensor.negotiation.reset();
  if (asked.size() < 2 || tensor.operation == kJoin) {
    return;
  }
  Late& late = ranks_[asked.back().rank];
  ++late.last;
  late.waited_for.add(asked[asked.size() - 2].at, until);
  for (const Asked& each : asked) {
    ranks_[each.rank].behind.add(from, each.at);
    ranks_[each.rank].waiting.add(each.at, until);
  }
}

// Of an operation of other ranks only there is no more than the negotiation.
void TimelineReader::count_elsewhere(Tensor& tensor) {
  if (tensor.known_at < 0 || !tensor.open.empty()) {
    return;
  }
  tensor.known_at = -1;
  for (Sum* sum : {&tensor.sum, &operations_[tensor.operation], &all_}) {
    ++sum->count;
  }
}

// Returns those ranks of its process set that have not asked. Those that have joined ask for nothing any more.
std::vector<int> TimelineReader::missing_in(const Tensor& tensor, std::set<int> joined) const {
  std::vector<int> missing;
  for (const Asked& each : tensor.asked) {
    joined.insert(each.rank);
  }
  if (const auto known = sets_.find(set_of(tensor.name)); known != sets_.end()) {
    std::set_difference(known->second.begin(), known->second.end(), joined.begin(), joined.end(),
                        std::back_inserter(missing));
  }
  return missing;
}

// What has not ended has waited, or worked, until the end of the file.
void TimelineReader::add_unfinished(TimelineSummary& summary) {
  std::set<int> joined;
  for (const auto& [pid, tensor] : tensors_) {
    if (!tensor.negotiation || tensor.operation != kJoin) {
      continue;
    }
    for (const Asked& each : tensor.asked) {
      joined.insert(each.rank);
    }
  }
  const double until = told_until_;
  for (auto& [pid, tensor] : tensors_) {
    if (!tensor.open.empty()) {
      const double began = tensor.known_at < 0 ? tensor.open.front().at : tensor.known_at;
      const std::string operation = lowered(tensor.open.front().name);
      summary.unfinished.push_back({tensor.name, operation, (until - began) * kMicro, false, {}});
      for (Sum* sum : {&tensor.sum, &operations_[operation], &all_}) {
        sum->worked.add(began, until);
      }
      last_ = std::max(last_, until);
    }
    if (tensor.negotiation) {
      const double began = tensor.asked.empty() ? tensor.negotiation->at : tensor.asked.front().at;
      std::vector<int> missing = missing_in(tensor, joined);
      add_wait(tensor, began, until);
      if (tensor.operation != kJoin && !missing.empty()) {
        for (const int rank : missing) {
          ranks_[rank].behind.add(began, until);
        }
        for (const Asked& each : tensor.asked) {
          ranks_[each.rank].behind.add(began, each.at);
          ranks_[each.rank].waiting.add(each.at, until);
        }
      }
      summary.unfinished.push_back({tensor.name, tensor.operation, (until - began) * kMicro, true, std::move(missing)});
      last_ = std::max(last_, until);
    }
    count_elsewhere(tensor);
  }
  sort_by_time(summary.unfinished, [](const TimelineSummary::Unfinished& each) { return each.seconds; });
}

TimelineSummary::Share TimelineReader::share_of(const Sum& sum) {
  TimelineSummary::Share share;
  share.count = sum.count;
  share.bytes = sum.bytes;
  share.waited_s = sum.waited.total() * kMicro;
  share.worked_s = sum.worked.total() * kMicro;
  return share;
}

// A rank that is behind because it waits itself is not the cause: another one is, that it waits for.
TimelineSummary::Rank TimelineReader::row_of(int rank, const Late& late) {
  TimeSpans both = late.behind;
  both.add(late.waiting);
  return {rank, late.last, late.waited_for.total() * kMicro,
          std::max(0.0, both.total() - late.waiting.total()) * kMicro};
}

Result<TimelineSummary> TimelineReader::finish(bool is_cut) {
  if (!is_timeline_) {
    return Error(Code::kInvalid, "it has no event of a timeline");
  }
  TimelineSummary summary;
  add_unfinished(summary);
  summary.seconds = first_ < 0 ? 0 : (last_ - first_) * kMicro;
  summary.is_cut = is_cut;
  summary.dropped = dropped_;
  summary.all = share_of(all_);
  for (const auto& [name, sum] : operations_) {
    summary.operations.push_back(share_of(sum));
    summary.operations.back().name = name;
  }
  for (const auto& [pid, tensor] : tensors_) {
    TimelineSummary::Share share = share_of(tensor.sum);
    if (share.count == 0 && time_of(share) == 0) {
      continue;
    }
    share.name = tensor.is_named ? tensor.name : std::to_string(pid);
    share.operation = tensor.operation;
    summary.tensors.push_back(std::move(share));
  }
  for (const auto& [rank, late] : ranks_) {
    summary.ranks.push_back(row_of(rank, late));
  }
  for (const auto& [name, phase] : phases_) {
    summary.phases.push_back({name, phase.first, phase.second.total() * kMicro});
  }
  sort_by_time(summary.operations, time_of);
  sort_by_time(summary.tensors, time_of);
  sort_by_time(summary.ranks, [](const TimelineSummary::Rank& each) { return each.behind_s; });
  sort_by_time(summary.phases, [](const TimelineSummary::Phase& each) { return each.seconds; });
  return summary;
}

}  // namespace hvd::launch
