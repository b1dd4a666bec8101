#include "runtime/engine/engine_impl.h"

#include <algorithm>
#include <numeric>
#include <system_error>

#include <pthread.h>

#include "runtime/base/thread.h"
#include "runtime/core/shape.h"
#include "runtime/link/shm_segment.h"

namespace hvd {
namespace {

// If a peer speaks through the kernel, a spinning driver asks the kernel at every look; this many looks take about 50
// us.
constexpr int kSpinsWithKernel = 100;
constexpr int kSpinsPerTurn = 256;  // for other drivers
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

}  // namespace

Engine::Impl::Impl(Parts parts)
    : parts_(std::move(parts)), has_said_goodbye_(static_cast<std::size_t>(parts_.map.size), false) {
  std::vector<int> all(static_cast<std::size_t>(parts_.map.size));
  std::iota(all.begin(), all.end(), 0);
  sets_[0].executor.emplace(parts_.map, all, *parts_.backend);
  sets_[0].counters = counters_.of(0);
  sets_[0].cache.emplace(parts_.map.size);
  set_table_.put(0, std::move(all), parts_.map, quick_path_of(parts_.mesh.get()), sets_[0].counters);
}

Result<std::unique_ptr<Engine::Impl>> Engine::Impl::create(Parts parts) {
  std::unique_ptr<Impl> impl(new Impl(std::move(parts)));
  HVD_TRY(impl->prepare());
  impl->start_thread();
  return impl;
}

Result<void> Engine::Impl::prepare() {
  HVD_TRY_ASSIGN(queue_, SubmitQueue::create());
  HVD_TRY_ASSIGN(turn_lock_, TurnLock::create());
  open_devices();
  HVD_TRY_ASSIGN(loop_, EventLoop::create(clock_));
  HVD_TRY(loop_->watch(queue_->fd(), EPOLLIN, [this](std::uint32_t) { on_wake(); }));
  HVD_TRY(loop_->watch(queue_->timer_fd(), EPOLLIN, [this](std::uint32_t) { on_wake(); }));
  HVD_TRY(open_channel());
  if (is_coordinator()) {
    open_timeline();
    if (parts_.map.size > 1 && StallWatch(parts_.options.stall).is_on()) {
      stall_watch_.emplace(parts_.options.stall);
    }
    const EngineOptions& options = parts_.options;
    coordinator_ = std::make_unique<Coordinator>(
        *loop_, Coordinator::Options{parts_.map.size, options.fusion_threshold_bytes, options.cycle_time,
                                     options.fuses_groups, options.autotune, options.cache_capacity});
    coordinator_->listen({[this](int rank, const Request& request) {
                            if (is_traced()) {
                              trace_request(rank, request);
                            }
                          },
                          [this](const Request& request) {
                            if (is_traced()) {
                              trace_hit(request);
                            }
                          }});
    open_autotune_log();
  }
  if (parts_.store != nullptr && parts_.store->notice_fd() >= 0) {
    HVD_TRY_ASSIGN(notice_watch_,
                   loop_->watch(parts_.store->notice_fd(), EPOLLIN, [this](std::uint32_t) { on_notice(); }));
  }
  return {};
}

// Opens the links to the coordinator, or from it to all ranks; within the coordinator's node they use shared memory.
Result<void> Engine::Impl::open_channel() {
  ShmSegment* shm = parts_.mesh == nullptr || parts_.map.node_index != 0 ? nullptr : parts_.mesh->shm().get();
  std::vector<ControlChannel::Peer> peers;
  for (int rank = 0; rank < parts_.map.size; ++rank) {
    if (rank == parts_.map.rank || (!is_coordinator() && rank != 0)) {
      continue;
    }
    ControlChannel::Peer peer{rank, parts_.mesh->control_fd(rank), std::nullopt, parts_.mesh->control_filter(rank)};
    if (shm != nullptr && parts_.map.node_of_rank[static_cast<std::size_t>(rank)] == 0) {
      // The coordinator leads the first node, whose ranks are the first ones.
      const int other = is_coordinator() ? rank : parts_.map.local_rank;
      ShmRing up = shm->ring_to_leader(other);
      ShmRing down = shm->ring_from_leader(other);
      peer.lane = is_coordinator() ? ControlChannel::Lane{up, down, shm->bell(rank)}
                                   : ControlChannel::Lane{down, up, shm->bell(0)};
    }
    peers.push_back(peer);
  }
  ControlChannel::Handlers handlers;
  handlers.on_frame = [this](int rank, const Frame& frame) { on_frame(rank, frame); };
  handlers.on_end = [this](int rank, const Error& why) { on_link_end(rank, why); };
  const auto bell = shm == nullptr ? std::nullopt : std::optional(shm->bell(parts_.map.local_rank));
  HVD_TRY_ASSIGN(channel_, ControlChannel::create(*loop_, peers, bell, std::move(handlers)));
  const ShmSegment* neighbours = parts_.mesh == nullptr ? nullptr : parts_.mesh->shm().get();
  spins_ = neighbours == nullptr ? kSpinsWithKernel : neighbours->spins();
  if (channel_->needs_loop()) {
    spins_ = std::min(spins_, kSpinsWithKernel);
  } else {
    spins_per_turn_ = kSpinsPerTurn;
  }
  return {};
}

void Engine::Impl::start_thread() {
  thread_ = hvd::start_thread("hvd-engine", [this] { run(); });
  if (const auto core = parts_.options.thread_core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<unsigned>(*core), &cores);
    if (const int failed = ::pthread_setaffinity_np(thread_.native_handle(), sizeof cores, &cores); failed != 0) {
      parts_.log->write(LogLevel::kWarning, "the engine's thread cannot run on core " + std::to_string(*core) + ": " +
                                                std::generic_category().message(failed));
    }
  }
}

Engine::Impl::~Impl() {
  leave();
}

void Engine::Impl::leave() {
  if (thread_.joinable()) {
    stop_.store(true);
    wake();
    thread_.join();
    // Finish what all ranks have launched first, also after an orderly end.
    devices_->close(kDeviceTime, Error(Code::kCancelled, "hvd_shutdown was called, and it did not end on the device"));
  }
}

bool Engine::Impl::is_forked() const {
  return !process_.is_here();
}

Result<void> Engine::Impl::submit(std::span<OpRef> ops, Caller caller) {
  // Check this before any lock: the thread that held the lock when the process was forked does not exist here.
  if (is_forked()) {
    return Error(Code::kNotInitialized,
                 "this process was forked from a rank of a job and is no rank of it; "
                 "use the job from the process that joined it");
  }
  HVD_CHECK(!ops.empty() && ops.size() <= control_wire::kMaxGroupTensors);
  for (const OpRef& op : ops.subspan(1)) {
    ops.front()->group.push_back(op.get());
  }
  const std::uint64_t asked_at = ticks_now();
  for (const OpRef& op : ops) {
    Submission& what = op->what;
    HVD_TRY(check_submission(what));
    if (what.kind == OpKind::kAllreduce && what.input == what.output && what.process_set == 0 && what.device < 0) {
      what.shared_at = buffer_table_.offset_of(what.output, size_bytes_of(what.shape, what.dtype).value_or(0));
    }
    op->asked_at = asked_at;
  }
  HVD_TRY(devices_->mark(ops));
  HVD_TRY(queue_->push(ops));
  rouse(caller);
  return {};
}

void Engine::Impl::rouse(Caller caller) {
  if (caller == Caller::kGoesOn) {
    rouse();
  } else if (caller == Caller::kWaitsSoon) {
    queue_->rouse_later();
  }
}

}  // namespace hvd
