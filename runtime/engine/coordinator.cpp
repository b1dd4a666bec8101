#include "runtime/engine/coordinator.h"

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
  return std::any_of(sets_.begin(), sets_.end(),
                     [](const auto& set) { return set.second->negotiator.has_unfinished(); });
}

std::vector<Incomplete> Coordinator::incomplete() const {
  std::vector<Incomplete> all;
  for (const auto& [number, set] : sets_) {
    for (Unfinished& tensor : set->negotiator.unfinished()) {
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
  const bool is_join = request.kind == OpKind::kJoin;
  HVD_TRY(set->second->negotiator.add(rank, std::move(request)));
  if (is_join) {
    const bool have_all_joined = !sets_.at(0)->negotiator.has_joined(rank);
    for (auto other = std::next(sets_.begin()); other != sets_.end(); ++other) {
      other->second->negotiator.note_join(rank);
      if (have_all_joined) {
        other->second->negotiator.forget_joins();
      }
    }
  }
  return {};
}

std::vector<Response> Coordinator::decide() {
  std::vector<Response> responses;
  for (auto& [number, set] : sets_) {
    if (set->negotiator.has_ready() && !is_worth_waiting(*set)) {
      decide_now(*set, responses);
    }
  }
  return responses;
}

std::vector<Response> Coordinator::decide_for_others() {
  std::vector<Response> responses;
  for (auto& [number, set] : sets_) {
    if (set->negotiator.ranks().front() != 0 && set->negotiator.has_ready() && !is_worth_waiting(*set)) {
      decide_now(*set, responses);
    }
  }
  return responses;
}

std::vector<Response> Coordinator::decide_now() {
  std::vector<Response> responses;
  for (auto& [number, set] : sets_) {
    decide_now(*set, responses);
  }
  return responses;
}

bool Coordinator::is_worth_waiting(Set& set) {
  if (!set.negotiator.has_fresh_incomplete() || set.has_waited || setting_.window <= Duration::zero()) {
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

void Coordinator::decide_now(Set& set, std::vector<Response>& responses) {
  loop_.cancel(set.window);
  set.window = 0;
  set.has_waited = false;
  std::vector<Ready> ready = set.negotiator.take();
  note_ready(ready);
  for (Ready& one : ready) {
    if (is_of_sets(one.request.kind) && one.error_code == 0) {
      change_sets(one, responses);
    }
  }
  const auto size = static_cast<int>(set.negotiator.ranks().size());
  auto planned = plan_fusion(std::move(ready), setting_.fusion_bytes, size, options_.fuses_groups);
  std::move(planned.begin(), planned.end(), std::back_inserter(responses));
}

// What is decided from here on, on all ranks, is decided under the setting that this brings.
void Coordinator::note_ready(const std::vector<Ready>& ready) {
  if (!autotuner_ || autotuner_->is_done()) {
    return;
  }
  const TimePoint now = loop_.clock().now();
  const auto note = [&](const std::string& name, const std::vector<std::int64_t>& shape, Dtype dtype) {
    autotuner_->note(name, size_bytes_of(shape, dtype).value_or(0), now);
  };
  for (const Ready& one : ready) {
    if (one.error_code != 0 || has_no_tensor(one.request.kind)) {
      continue;
    }
    note(one.request.name, one.request.shape, one.request.dtype);
    for (const GroupTensor& tensor : one.request.group) {
      note(tensor.name, tensor.shape, tensor.dtype);
    }
  }
  Autotuner::News news = autotuner_->take_news();
  setting_ = news.setting.value_or(setting_);
  tuning_news_.is_done = tuning_news_.is_done || news.is_done;
  std::move(news.trials.begin(), news.trials.end(), std::back_inserter(tuning_news_.trials));
}

Autotuner::News Coordinator::take_tuning_news() {
  return std::exchange(tuning_news_, {});
}

void Coordinator::change_sets(Ready& change, std::vector<Response>& responses) {
  if (change.request.kind == OpKind::kSetAdd) {
    add_set(change);
  } else {
    remove_set(change, responses);
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

// All ranks have asked for it, and what they asked for before is known here; what of that is ready is done first.
void Coordinator::remove_set(Ready& change, std::vector<Response>& responses) {
  const std::int32_t number = change.request.numbers.front();
  const auto set = sets_.find(number);
  if (number == 0 || set == sets_.end()) {
    refuse(change, "process set " + std::to_string(number) + " cannot be removed: " +
                       (number == 0 ? "it is that of all ranks" : "there is none of this number"));
    return;
  }
  decide_now(*set->second, responses);
  if (set->second->negotiator.is_busy()) {
    refuse(change, "process set " + std::to_string(number) +
                       " cannot be removed: operations are pending in it, for which not all its ranks have asked");
  } else {
    sets_.erase(set);
  }
}

}  // namespace hvd
