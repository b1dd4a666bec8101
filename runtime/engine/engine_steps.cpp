// The engine's actions: it decides (on the coordinator) and runs the steps that were decided. See engine_impl.h.
#include "runtime/engine/engine_impl.h"
#include "runtime/execute/stand_in.h"

namespace hvd {
namespace {

constexpr unsigned kDecisionsPerLook = 1024;

// `ops` are this rank's operations of the response, as far as they are known.
std::string label(const Response& response, std::span<PendingOp* const> ops) {
  const std::string& name = ops.empty() ? response.names.front() : ops.front()->what.name;
  const std::size_t tensors = std::max(response.names.size(), ops.size());
  std::string text = std::string(name_of(response.kind)) + " '" + name + "'";
  if (response.process_set != 0) {
    text += " of process set " + std::to_string(response.process_set);
  }
  if (tensors > 1) {
    text += " and " + std::to_string(tensors - 1) + " more";
  }
  return text;
}

}  // namespace

void Engine::Impl::advance() {
  for (;;) {
    if (over_) {
      fail_pending();
      say_goodbye();
      return;
    }
    // A collective could only hang with a broken connection; the cause will be known in a moment.
    if (suspicion_) {
      return;
    }
    // Requests that arrive while steps run are decided together: execution is the coordinator's first batching window.
    if (is_coordinator() && steps_.empty()) {
      decide();
    }
    if (steps_.empty()) {
      return;
    }
    steps_.pop(running_);
    run_step(running_);
  }
}

void Engine::Impl::decide() {
  if (is_shutdown_announced_) {
    return;
  }
  // A coordinator that never sleeps may still have a rank that never asks, so it must look for stalls here too.
  if (stall_watch_ && ++decisions_ % kDecisionsPerLook == 0) {
    look_for_stalls();
    if (over_) {
      return;
    }
  }
  announce(coordinator_->decide());
  tell_tuning();
}

// For the coordinator: sends the ranks what is decided, in this order, and takes its own part.
void Engine::Impl::announce(std::span<Coordinator::Decision> decisions) {
  for (Coordinator::Decision& decision : decisions) {
    const std::int32_t number = decision.hits.process_set;
    frames_.clear();
    append_hits(frames_, decision.hits);
    append_remembered(frames_, number, decision.news);
    append_responses(frames_, decision.responses);
    if (frames_.empty()) {
      continue;
    }
    const std::size_t peers = channel_->send_to(coordinator_->ranks_of(number), frames_);
    counters_.note_sent(peers, peers * frames_.size());
    if (is_traced()) {
      Timeline::Moment(*timeline_).cycle();
    }
    // Skip a set without this rank: this rank may not have made it yet, while it runs an earlier step.
    if (coordinator_->ranks_of(number).front() == 0) {
      const Result<void> taken = decision.hits.bits.empty() ? Result<void>() : take_hits(decision.hits);
      HVD_CHECK(taken.ok() && remember(number, decision.news).ok());  // this rank has asked for these itself
    }
    for (Response& response : decision.responses) {
      if (is_traced()) {
        trace_ready(response);
      }
      note_answered(response);
      steps_.push().response = std::move(response);
    }
  }
}

// For the coordinator: ends the order. What all ranks have asked for by now is still done.
void Engine::Impl::announce_shutdown(int rank) {
  if (is_shutdown_announced_) {
    return;
  }
  is_shutdown_announced_ = true;
  announce(coordinator_->decide_now());
  std::string frame;
  append_shutdown(frame, rank);
  channel_->send(frame);
  steps_.push().shutdown_by = rank;
}

void Engine::Impl::run_step(const Step& step) {
  if (step.shutdown_by) {
    shut_down(*step.shutdown_by);
  } else if (!step.ops.empty()) {
    run_ops(sets_.at(step.response.process_set), step.response, step.ops, step.known_at);
  } else {
    run_response(step.response, step.known_at);
  }
}

void Engine::Impl::run_response(const Response& response, std::uint64_t known_at) {
  const auto set = sets_.find(response.process_set);
  if (set != sets_.end() && !set->second.executor) {
    return;  // of a set without this rank
  }
  if (set == sets_.end()) {
    end_job(Error(Code::kProtocol, "the coordinator ordered " + label(response, {}) + ", which is not there"));
    return;
  }
  std::deque<PendingOp> stand_ins;
  auto ops = ops_of(response, stand_ins);
  if (!ops.ok()) {
    end_job(ops.error());
    return;
  }
  if (response.is_error()) {
    set->second.counters->add_failures(ops.value().size());
    finish_ops(ops.value(), Error(static_cast<Code>(response.error_code), response.error));
    return;
  }
  run_ops(set->second, response, ops.value(), known_at);
}

void Engine::Impl::run_ops(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops,
                           std::uint64_t known_at) {
  const std::uint64_t began = ticks_now();
  const std::shared_ptr<SetCounters> counters = set.counters;  // a change may end the set
  if (response.is_device) {
    if (is_traced()) {
      trace_pause(ops);
    }
    launch(set, response, ops, known_at);
    return;
  }
  Result<void> result = set.executor->run(response, ops, *this);
  if (result.ok() && is_change(response.kind)) {
    result = change(response, *ops.front());
  }
  if (result.ok()) {
    count(*counters, ops, known_at, began);
    if (is_traced()) {
      trace_end(ops);
    }
    finish_ops(ops, {});
    return;
  }
  if (is_traced()) {
    trace_pause(ops);
  }
  fail_step(result.error(), response, ops);
}

// The operations stay pending: they fail with the job's cause when that is known.
void Engine::Impl::fail_step(const Error& error, const Response& response, std::span<PendingOp* const> ops) {
  const Error why = error.with_context("rank " + std::to_string(parts_.map.rank) + ": " + label(response, ops));
  const bool is_own_failure = why.code() == Code::kResource || why.code() == Code::kProtocol ||
                              ((response.is_device || response.kind == OpKind::kSetAdd) &&
                               (why.code() == Code::kSystem || why.code() == Code::kTimeout));
  if (is_own_failure) {
    end_job(why);
  } else {
    suspect(why);
  }
}

// An error names the first tensor of a group, and applies to the whole group as this rank asked for it. The other
// ranks' group may differ, which may be the error.
std::vector<std::string> Engine::Impl::names_of(const Response& response) const {
  std::vector<std::string> names = response.names;
  const auto found = response.is_error() ? pending_.find(OpKey{response.process_set, names.front()}) : pending_.end();
  if (found != pending_.end()) {
    for (const PendingOp* other : found->second->group) {
      names.push_back(other->what.name);
    }
  }
  return names;
}

// Returns null for an operation that this rank has not asked for. A tensor of another rank may have the name of a join.
PendingOp* Engine::Impl::find_op(const Response& response, const std::string& name) {
  const auto found = pending_.find(OpKey{response.process_set, name});
  const auto is_join = [](OpKind kind) { return kind == OpKind::kJoin; };
  const bool is_here = found != pending_.end() && is_join(found->second->what.kind) == is_join(response.kind);
  return is_here ? found->second.get() : nullptr;
}

bool Engine::Impl::has_joined() const {
  const auto found = pending_.find(OpKey{0, kJoinName});
  return found != pending_.end() && found->second->what.kind == OpKind::kJoin;
}

// Returns this rank's part in a response. After this rank has joined, and when others make a process set by themselves,
// it uses stand-ins.
Result<std::vector<PendingOp*>> Engine::Impl::ops_of(const Response& response, std::deque<PendingOp>& stand_ins) {
  std::vector<PendingOp*> ops;
  const PendingOp* own = nullptr;
  for (const std::string& name : names_of(response)) {
    PendingOp* op = find_op(response, name);
    const std::size_t index = ops.size();
    // The kinds differ in a mismatch; otherwise all ranks asked for the same.
    if (op != nullptr && (response.is_error() || op->what.kind == response.kind)) {
      own = op;
      ops.push_back(op);
    } else if (op == nullptr && !response.numbers.empty()) {
      ops.push_back(&stand_ins.emplace_back(make_set_stand_in(response)));
    } else if (op == nullptr && response.kind == OpKind::kSetAdd && response.is_error()) {
      continue;  // only the set's members asked for it, and only they receive the error
    } else if (op == nullptr && has_joined() && index < response.counts.size()) {
      HVD_TRY_ASSIGN(stand_ins.emplace_back(), make_stand_in(response, index));
      ops.push_back(&stand_ins.back());
    } else if (op != nullptr || !has_joined() || !(response.is_error() || response.kind == OpKind::kBarrier)) {
      return Error(Code::kProtocol, "the coordinator ordered " + label(response, {}) + ", but rank " +
                                        std::to_string(parts_.map.rank) + " has not asked for it");
    }
  }
  for (PendingOp& stand_in : stand_ins) {
    // Stand-ins are packed with what this rank has asked for, and scaled with it; alone they are zeros.
    stand_in.what.prescale = own != nullptr ? own->what.prescale : 1.0;
  }
  return ops;
}

void Engine::Impl::finish_ops(std::span<PendingOp* const> ops, const Result<void>& result) {
  for (const PendingOp* op : ops) {
    if (op->asked_at == 0) {
      continue;  // a stand-in, which this rank did not ask for
    }
    const auto node = pending_.extract(OpKey{op->what.process_set, op->what.name});
    if (result.ok() && op->what.kind == OpKind::kJoin) {
      set_table_.restart_counts();
    }
    queue_->forget(node.key());
    if (!result.ok() && op->what.kind == OpKind::kSetRemove) {
      queue_->reopen_set(op->what.numbers.front());
    }
    node.mapped()->finish(result);
  }
}

}  // namespace hvd
