#include "runtime/engine/step_runner.h"

#include <deque>

namespace hvd {

void StepRunner::run(const Step& step) {
  if (step.shutdown_by) {
    parts_.ending.shut_down(*step.shutdown_by);
  } else if (!step.ops.empty()) {
    run_ops(*parts_.sets.find(step.response.process_set), step.response, step.ops, step.known_at);
  } else {
    run_response(step.response, step.known_at);
  }
}

void StepRunner::run_response(const Response& response, std::uint64_t known_at) {
  ProcessSet* set = parts_.sets.find(response.process_set);
  if (set == nullptr) {
    parts_.ending.fail(
        Error(Code::kProtocol, "the coordinator ordered " + text_of(response, {}) + ", which is not there"));
    return;
  }
  if (!set->executor) {
    return;  // of a set without this rank
  }
  std::deque<PendingOp> stand_ins;
  auto ops = parts_.pending.parts_of(response, stand_ins);
  if (!ops.ok()) {
    parts_.ending.fail(ops.error());
    return;
  }
  if (response.is_error()) {
    note_step(*set);
    set->counters->add_failures(ops.value().size());
    parts_.pending.finish(ops.value(), Error(static_cast<Code>(response.error_code), response.error));
    return;
  }
  run_ops(*set, response, ops.value(), known_at);
}

void StepRunner::note_step(const ProcessSet& set) {
  if (set.quick != nullptr) {
    set.quick->note_step();
  }
}

void StepRunner::run_ops(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops,
                         std::uint64_t known_at) {
  note_step(set);
  const std::uint64_t began = ticks_now();
  const std::shared_ptr<SetCounters> counters = set.counters;  // a change may end the set
  if (response.is_device) {
    if (parts_.trace.is_on()) {
      parts_.trace.pause(ops);
    }
    DeviceBatch batch;
    const auto launched = parts_.devices.launch(set, response, ops, known_at, batch, parts_.interrupt);
    if (!launched.ok()) {
      fail(launched.error(), response, ops);
    }
    parts_.devices.add_batch(ops, std::move(batch));
    return;
  }
  Result<void> result = set.executor->run(response, ops, parts_.interrupt);
  if (result.ok() && is_change(response.kind)) {
    result = change(response, *ops.front());
  }
  if (result.ok()) {
    count_step(*counters, ops, known_at, began);
    if (parts_.trace.is_on()) {
      parts_.trace.end(ops);
    }
    parts_.pending.finish(ops, {});
    return;
  }
  if (parts_.trace.is_on()) {
    parts_.trace.pause(ops);
  }
  fail(result.error(), response, ops);
}

Result<void> StepRunner::change(const Response& response, PendingOp& op) {
  const std::vector<std::int32_t>& numbers = op.what.numbers;
  switch (response.kind) {
    case OpKind::kSetAdd: {
      HVD_TRY_ASSIGN(ProcessSet * set,
                     parts_.sets.add(response.answer, numbers, parts_.trace.timeline(), parts_.interrupt));
      return parts_.devices.add_set(response.answer, *set, parts_.interrupt);
    }
    case OpKind::kSetRemove:
      HVD_TRY(parts_.devices.plane().remove_set(numbers.front(), parts_.interrupt));
      parts_.sets.remove(numbers.front());
      return {};
    case OpKind::kBufferAdd:
      return parts_.buffers.add(op);
    default:
      parts_.buffers.remove(numbers.front());
      return {};
  }
}

// The operations stay pending: they fail with the job's cause when that is known.
void StepRunner::fail(const Error& error, const Response& response, std::span<PendingOp* const> ops) {
  const Error why = error.with_context("rank " + std::to_string(parts_.map.rank) + ": " + text_of(response, ops));
  const bool is_own_failure = why.code() == Code::kResource || why.code() == Code::kProtocol ||
                              ((response.is_device || response.kind == OpKind::kSetAdd) &&
                               (why.code() == Code::kSystem || why.code() == Code::kTimeout));
  if (is_own_failure) {
    parts_.ending.fail(why);
  } else {
    parts_.ending.suspect(why);
  }
}

}  // namespace hvd
