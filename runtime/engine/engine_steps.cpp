// What the engine then does: decide (on the coordinator) and run the steps that were decided. See engine_impl.h.
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/stand_in.h"

namespace hvd {
namespace {

constexpr unsigned kDecisionsPerLook = 1024;

std::string label(const Response& response) {
  std::string text = std::string(name_of(response.kind)) + " '" + response.names.front() + "'";
  if (response.process_set != 0) {
    text += " of process set " + std::to_string(response.process_set);
  }
  if (response.names.size() > 1) {
    text += " and " + std::to_string(response.names.size() - 1) + " more";
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
    // With a broken connection a collective could only hang; what the cause is will be known in a moment.
    if (suspicion_) {
      return;
    }
    // What arrives while steps run is decided together: execution is the coordinator's first batching window.
    if (is_coordinator() && steps_.empty()) {
      decide();
    }
    if (steps_.empty()) {
      return;
    }
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    run_step(step);
  }
}

void Engine::Impl::decide() {
  if (is_shutdown_announced_) {
    return;
  }
  // One that never sleeps may still wait for somebody.
  if (stall_watch_ && ++decisions_ % kDecisionsPerLook == 0) {
    look_for_stalls();
    if (over_) {
      return;
    }
  }
  announce(coordinator_->decide());
  tell_tuning();
}

// Coordinator: tells the ranks of each response, in this order, and takes its own part.
void Engine::Impl::announce(std::vector<Response> responses) {
  for (std::size_t begin = 0; begin < responses.size();) {
    std::size_t end = begin + 1;
    while (end < responses.size() && responses[end].process_set == responses[begin].process_set) {
      ++end;
    }
    std::string frames;
    append_responses(frames, std::span(responses).subspan(begin, end - begin));
    channel_->send_to(coordinator_->ranks_of(responses[begin].process_set), frames);
    begin = end;
  }
  if (is_traced() && !responses.empty()) {
    timeline_->cycle();
  }
  for (Response& response : responses) {
    if (is_traced()) {
      trace_ready(response);
    }
    steps_.push_back({std::move(response), std::nullopt});
  }
}

// Coordinator: the order ends here. What all ranks have asked for by now is still done.
void Engine::Impl::announce_shutdown(int rank) {
  if (is_shutdown_announced_) {
    return;
  }
  is_shutdown_announced_ = true;
  announce(coordinator_->decide_now());
  std::string frame;
  append_shutdown(frame, rank);
  channel_->send(frame);
  steps_.push_back({{}, rank});
}

void Engine::Impl::run_step(const Step& step) {
  if (step.shutdown_by) {
    shut_down(*step.shutdown_by);
  } else {
    run_response(step.response, step.known_at);
  }
}

void Engine::Impl::run_response(const Response& response, std::uint64_t known_at) {
  const auto set = sets_.find(response.process_set);
  if (set != sets_.end() && !set->second.executor) {
    return;  // of a set of others
  }
  if (set == sets_.end()) {
    end_job(Error(Code::kProtocol, "the coordinator ordered " + label(response) + ", which is not there"));
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
    finish_ops(response, Error(static_cast<Code>(response.error_code), response.error));
    return;
  }
  if (is_traced()) {
    trace_begin(ops.value());
  }
  const std::uint64_t began = ticks_now();
  Result<void> result = set->second.executor->run(response, ops.value(), *this);
  if (result.ok() && is_change(response.kind)) {
    result = change(response, *ops.value().front());
  }
  if (result.ok()) {
    count(set->second, ops.value(), known_at, began);
    if (is_traced()) {
      trace_end(ops.value());
    }
    finish_ops(response, {});
    return;
  }
  // The operations stay pending: they fail with the job's cause once that is known.
  const Error why = result.error().with_context("rank " + std::to_string(parts_.map.rank) + ": " + label(response));
  const bool is_own_failure = why.code() == Code::kResource || why.code() == Code::kProtocol;
  if (is_own_failure) {
    end_job(why);
  } else {
    suspect(why);
  }
}

// An error names the first of a group, and is one of the whole group as this rank asked for it: what the others asked
// for may be what the error is about.
std::vector<std::string> Engine::Impl::names_of(const Response& response) const {
  std::vector<std::string> names = response.names;
  const auto found = response.is_error() ? pending_.find(key_of(response.process_set, names.front())) : pending_.end();
  if (found != pending_.end()) {
    const auto& group = found->second.what.group;
    names.insert(names.end(), group.begin(), group.end());
  }
  return names;
}

// Null for what this rank has not asked for. A tensor of another rank may have the name of a join.
PendingOp* Engine::Impl::find_op(const Response& response, const std::string& name) {
  const auto found = pending_.find(key_of(response.process_set, name));
  const auto is_join = [](OpKind kind) { return kind == OpKind::kJoin; };
  const bool is_here = found != pending_.end() && is_join(found->second.what.kind) == is_join(response.kind);
  return is_here ? &found->second : nullptr;
}

bool Engine::Impl::has_joined() const {
  const auto found = pending_.find(kJoinName);
  return found != pending_.end() && found->second.what.kind == OpKind::kJoin;
}

// This rank's part in a response. What others do after this rank has joined, it does with stand-ins.
Result<std::vector<PendingOp*>> Engine::Impl::ops_of(const Response& response, std::deque<PendingOp>& stand_ins) {
  std::vector<PendingOp*> ops;
  const PendingOp* own = nullptr;
  for (const std::string& name : names_of(response)) {
    PendingOp* op = find_op(response, name);
    const std::size_t index = ops.size();
    // In a mismatch the kinds differ; otherwise all ranks asked for the same.
    if (op != nullptr && (response.is_error() || op->what.kind == response.kind)) {
      own = op;
      ops.push_back(op);
    } else if (op == nullptr && has_joined() && index < response.counts.size()) {
      HVD_TRY_ASSIGN(stand_ins.emplace_back(), make_stand_in(response, index));
      ops.push_back(&stand_ins.back());
    } else if (op != nullptr || !has_joined() || !(response.is_error() || response.kind == OpKind::kBarrier)) {
      return Error(Code::kProtocol, "the coordinator ordered " + label(response) + ", but rank " +
                                        std::to_string(parts_.map.rank) + " has not asked for it");
    }
  }
  for (PendingOp& stand_in : stand_ins) {
    // They are packed with what this rank has asked for, and scaled with it.
    stand_in.what.prescale = own != nullptr ? own->what.prescale : 1.0;
    stand_in.what.postscale = own != nullptr ? own->what.postscale : 1.0;
  }
  return ops;
}

void Engine::Impl::finish_ops(const Response& response, const Result<void>& result) {
  for (const std::string& name : names_of(response)) {
    if (find_op(response, name) == nullptr) {
      continue;  // a stand-in's, or nothing at all
    }
    auto node = pending_.extract(key_of(response.process_set, name));
    if (result.ok() && response.kind == OpKind::kJoin) {
      set_table_.restart_counts();
    }
    queue_->forget(node.key());
    if (!result.ok() && node.mapped().what.kind == OpKind::kSetRemove) {
      queue_->reopen_set(node.mapped().what.numbers.front());
    }
    node.mapped().finish(result);
  }
}

}  // namespace hvd
