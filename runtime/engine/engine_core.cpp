#include "runtime/engine/engine_core.h"

#include "runtime/core/shape.h"
#include "runtime/link/shm_segment.h"

namespace hvd {
namespace {

// How long work on a device may take when its rank leaves.
constexpr Duration kDeviceTime = std::chrono::seconds(10);

// Refuses what the wire format cannot carry.
Result<void> check_submission(const Submission& what) {
  if (what.name.empty() || what.name.size() > control_wire::kMaxNameBytes) {
    return Error(Code::kInvalid, "a tensor's name must have 1 to " + std::to_string(control_wire::kMaxNameBytes) +
                                     " bytes, this one has " + std::to_string(what.name.size()));
  }
  if (what.shape.size() > kMaxDims) {
    return Error(Code::kInvalid, "tensor '" + what.name + "' has " + std::to_string(what.shape.size()) +
                                     " dimensions, more than " + std::to_string(kMaxDims));
  }
  if (!size_bytes_of(what.shape, what.dtype)) {
    return Error(Code::kInvalid, "tensor '" + what.name + "' has the impossible shape " + shape_text(what.shape));
  }
  return {};
}

constexpr const char* kWhileOperating = "while an operation was carried out";
constexpr const char* kWhileTurning = "while the rank acted on what it was told";

// The error of what threw. It ends the job: the others wait for this rank's part of an operation, or for its answer,
// and nothing else reaches them.
Error error_of(const std::exception& thrown, const char* when) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) {
    return {Code::kResource, std::string("out of memory ") + when};
  }
  return {Code::kSystem, std::string(when) + ": " + thrown.what()};
}

Result<bool> run_quick(QuickPath& path, const QuickOp& op) {
  try {
    return path.try_run(op);
  } catch (const std::exception& thrown) {
    return error_of(thrown, kWhileOperating);
  }
}

ShmSegment* shm_of(const EngineCore::Parts& parts) {
  return parts.mesh == nullptr ? nullptr : parts.mesh->shm().get();
}

ProcessSets::Settings set_settings(const EngineCore::Parts& parts, QuickCalls& calls) {
  const EngineOptions& options = parts.options;
  return {parts.map,        options.mesh,   options.tuning,    options.backends, options.set_timeout,
          parts.mesh.get(), *parts.backend, parts.store.get(), *parts.log,       &calls};
}

}  // namespace

EngineCore::EngineCore(Parts parts)
    : parts_(std::move(parts)),
      counters_(parts_.map.rank),
      buffers_(shm_of(parts_)),
      sets_(set_settings(parts_, quick_relay_), set_table_, counters_) {}

Result<std::unique_ptr<EngineCore>> EngineCore::create(Parts parts, std::function<void()> wake) {
  std::unique_ptr<EngineCore> core(new EngineCore(std::move(parts)));
  HVD_TRY(core->open(std::move(wake)));
  return core;
}

Result<void> EngineCore::open(std::function<void()> wake) {
  HVD_TRY_ASSIGN(queue_, SubmitQueue::create(counters_.activity()));
  HVD_TRY_ASSIGN(loop_, EventLoop::create(clock_));
  quick_relay_.open(*queue_, wake);
  HVD_TRY(loop_->watch(queue_->fd(), EPOLLIN, [this](std::uint32_t) { on_wake(); }));
  HVD_TRY(loop_->watch(queue_->timer_fd(), EPOLLIN, [this](std::uint32_t) { on_wake(); }));
  if (parts_.map.rank == 0) {
    trace_.open(parts_.options.timeline, *parts_.log);
    sets_.find(0)->executor->trace_to(trace_.timeline());
  }
  pending_ = std::make_unique<PendingOps>(*queue_, set_table_, parts_.map.rank);
  ControlChannel::Handlers handlers;
  handlers.on_frame = [this](int rank, const Frame& frame) { on_frame(rank, frame); };
  handlers.on_end = [this](int rank, const Error& why) { ending_->end_link(rank, why); };
  const StepSource::Parts agreed{parts_.map, parts_.mesh.get(), *loop_,     *queue_, *pending_, sets_,
                                 trace_,     counters_,         *parts_.log};
  HVD_TRY_ASSIGN(source_, StepSource::create(source_settings(), agreed, std::move(handlers),
                                             [this](const Error& why) { ending_->fail(why); }));
  devices_ = std::make_unique<DeviceWork>(
      device_settings(), DeviceWork::Parts{*queue_, *pending_, sets_, trace_, *parts_.log}, std::move(wake));
  ending_ = std::make_unique<JobEnding>(JobEnding::Parts{parts_.map, parts_.store.get(), *loop_, *queue_, *pending_,
                                                         *source_, devices_->plane(), *parts_.log});
  runner_ = std::make_unique<StepRunner>(
      StepRunner::Parts{parts_.map, *pending_, sets_, buffers_, *devices_, trace_, *ending_, *this});
  return ending_->open();
}

StepSource::Settings EngineCore::source_settings() const {
  const EngineOptions& options = parts_.options;
  return {Coordinator::Options{parts_.map.size, options.fusion_threshold_bytes, options.cycle_time,
                               options.fuses_groups, options.autotune, options.cache_capacity},
          options.stall, options.autotune.log_path};
}

DevicePlane::Settings EngineCore::device_settings() const {
  DevicePlane::Settings settings;
  settings.options = parts_.options.devices;
  settings.start_limit = parts_.options.set_timeout;
  settings.stall = parts_.options.stall;
  return settings;
}

Result<void> EngineCore::submit(std::span<OpRef> ops) {
  HVD_CHECK(!ops.empty() && ops.size() <= control_wire::kMaxGroupTensors);
  for (const OpRef& op : ops.subspan(1)) {
    ops.front()->group.push_back(op.get());
  }
  const std::uint64_t asked_at = ticks_now();
  for (const OpRef& op : ops) {
    Submission& what = op->what;
    HVD_TRY(check_submission(what));
    if (what.kind == OpKind::kAllreduce && what.input == what.output && what.process_set == 0 && what.device < 0) {
      what.shared_at = buffers_.table().offset_of(what.output, size_bytes_of(what.shape, what.dtype).value_or(0));
    }
    op->asked_at = asked_at;
  }
  HVD_TRY(devices_->plane().mark(ops));
  auto pushed = queue_->push(ops);
  if (!pushed.ok() && pushed.error().code() == Code::kLostPeer) {
    ending_->note_refused();
  }
  return pushed;
}

bool EngineCore::try_quick(const SetPlace& set, int process_set, const QuickOp& op) {
  if (set.quick == nullptr || !queue_->enter_alone(process_set, op)) {
    return false;
  }
  const bool is_timed = set.counters->times_quick(op.kind);
  const bool is_traced = trace_.is_on();
  const std::uint64_t began = is_timed || is_traced ? ticks_now() : 0;
  const auto tried = run_quick(*set.quick, op);
  // A set that is being removed here may be gone on other ranks; then the operation is refused.
  const bool is_explained = !tried.ok() && tried.error().code() == Code::kLostPeer && queue_->has_ended(process_set);
  if (!tried.ok() && !is_explained) {
    const std::string name = op.name.empty() ? noname_of(op.kind, op.noname) : std::string(op.name);
    quick_relay_.fail(tried.error().with_context(std::string(name_of(op.kind)) + " '" + name + "'"));
  }
  const bool is_done = tried.ok() && tried.value();
  if (is_done && is_traced) {
    trace_.quick(process_set, op, began);
  }
  if (is_done) {
    set.counters->add_quick(op.kind, op.size_bytes, is_timed ? ticks_between(began, ticks_now()) : 0);
  }
  queue_->leave_alone();
  return is_done;
}

void EngineCore::note_sleep() {
  counters_.note_sleep();
  queue_->show_oldest();
}

void EngineCore::on_wake() {
  queue_->quiet();
  source_->ask_for_submissions();
  const int self = parts_.map.rank;
  const auto failed = devices_->plane().take_error();
  if (failed && ending_->is_over()) {
    devices_->plane().abort(*failed);  // the job has ended in order, and nobody else ends what still runs there
  }
  end_for(failed, self);
  end_for(quick_relay_.take_error(), self);
  for (const AnswerCall& call : quick_relay_.take()) {
    if (const auto called = source_->call_for(call); !called.ok()) {
      end_for(called.error(), self);
    }
  }
  if (is_leaving_.load()) {
    ending_->leave();
  }
}

// Ends the job if something has failed. A lost connection often has a cause that is about to be known.
void EngineCore::end_for(const std::optional<Error>& failed, int by) {
  if (failed) {
    const Error why = failed->with_context("rank " + std::to_string(by));
    why.code() == Code::kLostPeer ? ending_->suspect(why) : ending_->fail(why);
  }
}

void EngineCore::on_frame(int rank, const Frame& frame) {
  if (auto taken = take_frame(rank, frame); !taken.ok()) {
    // A frame that is wrong is its sender's. All else failed here: while this rank answered it, or for want of memory.
    end_for(taken.error(), taken.error().code() == Code::kProtocol ? rank : parts_.map.rank);
  }
}

Result<void> EngineCore::take_frame(int rank, const Frame& frame) {
  if (frame.type == control_wire::kGoodbye) {
    ending_->note_goodbye(rank);
    return {};
  }
  if (ending_->is_over()) {
    return {};  // a late message of a job that is over
  }
  if (frame.type == control_wire::kAbort) {
    HVD_TRY_ASSIGN(const std::string cause, decode_abort(frame.body));
    ending_->abort(cause);
    return {};
  }
  return source_->take(rank, frame);
}

bool EngineCore::take_in() {
  const bool has_submissions = queue_->has_waiting();
  if (has_submissions) {
    source_->ask_for_submissions();
  }
  return source_->channel().poll() || has_submissions;
}

void EngineCore::advance() {
  StepRing& steps = source_->steps();
  for (;;) {
    if (ending_->is_over()) {
      ending_->finish();
      return;
    }
    // A collective could only hang with a broken connection; the cause will be known in a moment.
    if (ending_->state().is_suspicious()) {
      return;
    }
    // Requests that arrive while steps run are decided together: execution is the coordinator's first batching window.
    if (steps.empty()) {
      source_->decide();
    }
    if (steps.empty()) {
      return;
    }
    steps.pop(running_);
    try {
      runner_->run(running_);
    } catch (const std::exception& thrown) {
      end_for(error_of(thrown, kWhileOperating), parts_.map.rank);
    }
  }
}

bool EngineCore::outlives(const std::exception& thrown) {
  const Error why = error_of(thrown, kWhileTurning);
  if (ending_->is_over()) {
    ending_->fail_loop(why);
    return false;
  }
  end_for(why, parts_.map.rank);
  return true;
}

Result<void> EngineCore::check() {
  take_in();
  HVD_TRY(loop_->turn(Deadline(TimePoint())));
  source_->note_running();
  if (!ending_->state().is_suspicious()) {
    source_->decide_for_others();
  }
  if (ending_->is_over()) {
    return *ending_->state().over();
  }
  return {};
}

bool EngineCore::sleep() {
  if (!queue_->sleep() || !source_->sleep()) {
    return false;
  }
  note_sleep();
  return true;
}

void EngineCore::stay_awake() {
  source_->stay_awake();
  queue_->stay_awake();
}

bool EngineCore::is_idle() const {
  return pending_->empty() && source_->steps().empty() && !ending_->is_over() && loop_->sleep_ms() < 0;
}

void EngineCore::close_devices() {
  devices_->plane().close(kDeviceTime,
                          Error(Code::kCancelled, "hvd_shutdown was called, and it did not end on the device"));
}

}  // namespace hvd
