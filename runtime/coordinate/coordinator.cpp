#include "runtime/coordinate/coordinator.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "runtime/controller/fusion_plan.h"
#include "runtime/core/shape.h"

namespace hvd {
namespace {

void refuse(Ready& change, std::string why) {
  change.error_code = static_cast<std::int32_t>(Code::kInvalid);
  change.error = std::move(why);
}

}  // namespace

Coordinator::Coordinator(EventLoop& loop, const Options& options)
    : loop_(loop), options_(options), setting_{options.fusion_threshold_bytes, options.window} {
  if (options.autotune.is_on) {
    autotuner_.emplace(options.autotune, setting_);
  }
  std::vector<int> all(static_cast<std::size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  sets_.emplace(0, std::make_unique<Set>(*this, std::move(all)));
}

Coordinator::~Coordinator() = default;

const std::vector<int>& Coordinator::ranks_of(int process_set) const {
  const auto found = sets_.find(process_set);
  return found == sets_.end() ? sets_.at(0)->negotiator.ranks() : found->second->negotiator.ranks();
}

bool Coordinator::has_incomplete() const {
  return std::any_of(sets_.begin(), sets_.end(), [](const auto& set) { return set.second->has_unfinished(); });
}

std::vector<Incomplete> Coordinator::incomplete() const {
  std::vector<Incomplete> all;
  for (const auto& [number, set] : sets_) {
    std::vector<Unfinished> tensors = set->known.unfinished();
    for (Unfinished& tensor : tensors) {
      for (int& missing : tensor.missing) {
        missing = set->negotiator.ranks()[static_cast<std::size_t>(missing)];
      }
    }
    auto others = set->negotiator.unfinished();
    std::move(others.begin(), others.end(), std::back_inserter(tensors));
    std::sort(tensors.begin(), tensors.end(),
              [](const Unfinished& a, const Unfinished& b) { return a.serial < b.serial; });
    for (Unfinished& tensor : tensors) {
      all.push_back({tensor.serial, number, std::string(name_of(tensor.kind)) + " '" + tensor.name + "'",
                     std::move(tensor.missing)});
    }
  }
  return all;
}

Result<void> Coordinator::add(int rank, Request request) {
  const auto set = sets_.find(request.process_set);
  const bool is_of_all = is_of_sets(request.kind) || request.kind == OpKind::kJoin;
  if (set == sets_.end() || (is_of_all && request.process_set != 0)) {
    return Error(Code::kProtocol, "rank " + std::to_string(rank) + " asked for '" + request.name + "' in process set " +
                                      std::to_string(request.process_set) + ", which is not there");
  }
  if (late_joins_.contains(rank) && !request.is_again) {
    return Error(Code::kProtocol,
                 "rank " + std::to_string(rank) + " asked for '" + request.name + "' after it has joined");
  }
  if (request.kind == OpKind::kJoin) {
    if (has_late_bits(rank)) {
      late_joins_.insert(rank);
      return {};
    }
    return join(rank);
  }
  if (request.by_members) {
    return add_set_by_members(rank, std::move(request));
  }
  Set& of = *set->second;
  if (request.is_again) {
    HVD_TRY(of.forget_late_bit(rank));
  }
  if (const int position = of.known.find(request.name); position >= 0) {
    HVD_TRY(hand_over(of, position));
    of.known.hold(position);
  }
  HVD_TRY(of.negotiator.add(rank, std::move(request)));
  const bool joins_now = late_joins_.contains(rank) && !has_late_bits(rank);
  if (!joins_now) {
    return {};
  }
  late_joins_.erase(rank);
  return join(rank);
}

bool Coordinator::Set::has_late_bits() const {
  return std::any_of(late_bits.begin(), late_bits.end(), [](int bits) { return bits > 0; });
}

Result<void> Coordinator::Set::forget_late_bit(int rank) {
  const int index = negotiator.index_of(rank);
  if (index < 0 || late_bits[static_cast<std::size_t>(index)] == 0) {
    return Error(Code::kProtocol, "rank " + std::to_string(rank) + " asked again for what it has not asked for");
  }
  --late_bits[static_cast<std::size_t>(index)];
  return {};
}

bool Coordinator::has_late_bits(int rank) const {
  return std::any_of(sets_.begin(), sets_.end(), [rank](const auto& set) {
    const int index = set.second->negotiator.index_of(rank);
    return index >= 0 && set.second->late_bits[static_cast<std::size_t>(index)] > 0;
  });
}

Result<void> Coordinator::add_set_by_members(int rank, Request request) {
  const std::vector<int> members = request.numbers;
  if (!std::binary_search(members.begin(), members.end(), rank)) {
    return Error(Code::kProtocol, "rank " + std::to_string(rank) + " asked for '" + request.name +
                                      "', for which only members of the set ask");
  }
  return sets_.at(0)->negotiator.add(rank, std::move(request), &members);
}

// A joined rank sends no bits any more. So until all have joined, the negotiator takes over what the others ask for.
Result<void> Coordinator::join(int rank) {
  Request request;
  request.kind = OpKind::kJoin;
  request.name = kJoinName;
  for (const auto& [number, set] : sets_) {
    for (int position = 0; set->negotiator.index_of(rank) >= 0 && set->known.has(position); ++position) {
      HVD_TRY(hand_over(*set, position));
    }
  }
  HVD_TRY(sets_.at(0)->negotiator.add(rank, std::move(request)));
  const bool have_all_joined = !sets_.at(0)->negotiator.has_joined(rank);
  for (auto other = std::next(sets_.begin()); other != sets_.end(); ++other) {
    other->second->negotiator.note_join(rank);
    if (have_all_joined) {
      other->second->negotiator.forget_joins();
    }
  }
  return {};
}

// Passes the ranks' bits for this position to the negotiator, as if they had asked by message.
Result<void> Coordinator::hand_over(Set& set, int position) {
  std::vector<int> indices;
  const auto size = static_cast<int>(set.negotiator.ranks().size());
  for (int index = 0; index < size; ++index) {
    if (set.known.has_asked(position, index)) {
      indices.push_back(index);
    }
  }
  if (indices.empty() || static_cast<int>(indices.size()) == size) {
    return {};  // none has asked; or all have, and it will be done as a known tensor
  }
  set.known.forget_asks(position);
  set.known.hold(position);
  for (const int index : indices) {
    // The serial stays, since a stall's age goes by it.
    HVD_TRY(set.negotiator.add(set.negotiator.ranks()[static_cast<std::size_t>(index)],
                               set.known.request_of(position, index), nullptr, set.known.serial(position)));
  }
  return {};
}

Result<void> Coordinator::add_by_message(Set& set, int rank, int position) {
  set.known.hold(position);
  return set.negotiator.add(rank, set.known.request_of(position, set.negotiator.index_of(rank)));
}

Result<void> Coordinator::add_known(int rank, const KnownBits& known) {
  const auto found = sets_.find(known.process_set);
  const int index = found == sets_.end() ? -1 : found->second->negotiator.index_of(rank);
  if (index < 0 || known.changes > found->second->known.changes()) {
    return Error(Code::kProtocol, "rank " + std::to_string(rank) + " asked for what it cannot know in process set " +
                                      std::to_string(known.process_set));
  }
  Set& set = *found->second;
  Result<void> outcome;
  known.bits.for_each([&](int position) {
    if (!outcome.ok()) {
      return;
    }
    if (!set.known.has(position)) {
      outcome = Error(Code::kProtocol, "rank " + std::to_string(rank) + " asked for an unknown tensor");
    } else if (!set.known.is_current(position, known.changes)) {
      ++set.late_bits[static_cast<std::size_t>(index)];
      return;
    } else if (set.known.is_held(position) || set.negotiator.has_any_joined()) {
      outcome = add_by_message(set, rank, position);
    } else if (!set.known.ask(position, index, set.negotiator.next_serial())) {
      outcome = Error(Code::kProtocol, "rank " + std::to_string(rank) + " asked twice for tensor '" +
                                           set.known.request(position).name + "'");
    }
    if (outcome.ok() && listeners_.on_asked) {
      listeners_.on_asked(rank, set.known.request(position));
    }
  });
  return outcome;
}

std::span<Coordinator::Decision> Coordinator::decide() {
  decided_ = 0;
  for_each_set([this](int number, Set& set) {
    if (set.has_ready() && !is_worth_waiting(set)) {
      decide_now(number, set);
    }
  });
  return std::span(decisions_).first(decided_);
}

std::span<Coordinator::Decision> Coordinator::decide_for_others() {
  decided_ = 0;
  for_each_set([this](int number, Set& set) {
    if (set.negotiator.ranks().front() != 0 && set.has_ready() && !is_worth_waiting(set)) {
      decide_now(number, set);
    }
  });
  return std::span(decisions_).first(decided_);
}

std::span<Coordinator::Decision> Coordinator::decide_now() {
  decided_ = 0;
  for_each_set([this](int number, Set& set) { decide_now(number, set); });
  return std::span(decisions_).first(decided_);
}

Coordinator::Decision& Coordinator::add_decision(int process_set) {
  if (decided_ == decisions_.size()) {
    decisions_.emplace_back();
  }
  Decision& decision = decisions_[decided_++];
  decision.hits.process_set = process_set;
  decision.hits.fusion_bytes = setting_.fusion_bytes;
  decision.hits.fuses_groups = options_.fuses_groups;
  decision.hits.bits.clear();
  decision.news.clear();
  decision.responses.clear();
  return decision;
}

bool Coordinator::is_worth_waiting(Set& set) {
  const bool has_fresh_incomplete = set.negotiator.has_fresh_incomplete() || set.known.has_fresh_incomplete();
  if (!has_fresh_incomplete || set.has_waited || setting_.window <= Duration::zero()) {
    return false;
  }
  if (set.window == 0) {
    set.window = loop_.after(setting_.window, [&set] {
      set.window = 0;
      set.has_waited = true;
    });
  }
  return true;
}

void Coordinator::decide_now(int number, Set& set) {
  loop_.cancel(set.window);
  set.window = 0;
  set.has_waited = false;
  const bool is_tuning = autotuner_ && !autotuner_->is_done();
  std::vector<Ready> ready = set.negotiator.take();
  if (is_tuning) {
    note_ready(ready);
  }
  for (Ready& one : ready) {
    if (is_of_sets(one.request.kind) && one.error_code == 0) {
      change_sets(one);
    }
  }
  Decision& decision = add_decision(number);
  set.known.take(decision.hits.bits);
  note_hits(set, decision.hits.bits, is_tuning);
  if (is_tuning) {
    take_setting();
    decision.hits.fusion_bytes = setting_.fusion_bytes;
  }
  for (const Ready& one : ready) {
    if (auto news = set.known.remember(one)) {
      decision.news.push_back(*std::move(news));
    }
  }
  // Release positions only now. Ranks take in changes of positions before the answers, and a tensor that waits for its
  // answer must not have lost its position.
  for (const Ready& one : ready) {
    if (const int position = set.known.find(one.request.name); position >= 0) {
      set.known.release(position);
    }
  }
  // A join comes after all that was asked for before it, whatever the priority of that is.
  std::stable_sort(ready.begin(), ready.end(), [](const Ready& a, const Ready& b) {
    const bool is_a_join = a.request.kind == OpKind::kJoin;
    const bool is_b_join = b.request.kind == OpKind::kJoin;
    return is_a_join != is_b_join ? is_b_join : a.request.priority > b.request.priority;
  });
  const auto size = static_cast<int>(set.negotiator.ranks().size());
  if (!ready.empty()) {
    decision.responses = plan_fusion(std::move(ready), setting_.fusion_bytes, size, options_.fuses_groups);
  }
}

void Coordinator::note_hits(const Set& set, const PositionBits& hits, bool is_tuning) {
  if (!is_tuning && !listeners_.on_hit) {
    return;
  }
  const TimePoint now = loop_.clock().now();
  hits.for_each([&](int position) {
    const Request& request = set.known.request(position);
    if (is_tuning) {
      note(request, now);
    }
    if (listeners_.on_hit) {
      listeners_.on_hit(request);
    }
  });
}

void Coordinator::note(const Request& request, TimePoint now) {
  const auto note_one = [&](const std::string& name, const std::vector<std::int64_t>& shape, Dtype dtype) {
    autotuner_->note(name, size_bytes_of(shape, dtype).value_or(0), now);
  };
  if (has_no_tensor(request.kind)) {
    return;
  }
  note_one(request.name, request.shape, request.dtype);
  for (const GroupTensor& tensor : request.group) {
    note_one(tensor.name, tensor.shape, tensor.dtype);
  }
}

void Coordinator::note_ready(const std::vector<Ready>& ready) {
  const TimePoint now = loop_.clock().now();
  for (const Ready& one : ready) {
    if (one.error_code == 0) {
      note(one.request, now);
    }
  }
}

// The new setting applies to all later decisions, on all ranks.
void Coordinator::take_setting() {
  Autotuner::News news = autotuner_->take_news();
  setting_ = news.setting.value_or(setting_);
  tuning_news_.is_done = tuning_news_.is_done || news.is_done;
  std::move(news.trials.begin(), news.trials.end(), std::back_inserter(tuning_news_.trials));
}

Autotuner::News Coordinator::take_tuning_news() {
  return std::exchange(tuning_news_, {});
}

void Coordinator::change_sets(Ready& change) {
  if (change.request.kind == OpKind::kSetAdd) {
    add_set(change);
  } else {
    remove_set(change);
  }
}

void Coordinator::add_set(Ready& change) {
  const std::vector<std::int32_t>& ranks = change.request.numbers;
  if (ranks.back() >= options_.size) {
    refuse(change, "a process set with rank " + std::to_string(ranks.back()) + ", but the ranks are 0 to " +
                       std::to_string(options_.size - 1));
    return;
  }
  for (const auto& [number, set] : sets_) {
    if (set->negotiator.ranks() == ranks) {
      refuse(change, "process set " + std::to_string(number) + " has the same ranks already");
      return;
    }
  }
  change.answer = ++last_set_;
  sets_.emplace(last_set_, std::make_unique<Set>(*this, ranks));
}

// All ranks have asked for the removal, so all their earlier requests are known here; those that are ready are done
// first.
void Coordinator::remove_set(Ready& change) {
  const std::int32_t number = change.request.numbers.front();
  const auto set = sets_.find(number);
  if (number == 0 || set == sets_.end()) {
    refuse(change, "process set " + std::to_string(number) + " cannot be removed: " +
                       (number == 0 ? "it is that of all ranks" : "there is none of this number"));
    return;
  }
  decide_now(number, *set->second);
  if (set->second->negotiator.is_busy() || set->second->has_unfinished() || set->second->has_late_bits()) {
    refuse(change, "process set " + std::to_string(number) +
                       " cannot be removed: operations are pending in it, for which not all its ranks have asked");
  } else {
    sets_.erase(set);
  }
}

}  // namespace hvd
