#include "runtime/engine/engine_impl.h"

#include <signal.h>
#include <unistd.h>

#include <pthread.h>

#include "runtime/core/shape.h"

namespace hvd {
namespace {

// What the wire cannot carry.
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
    : parts_(std::move(parts)),
      owner_(::getpid()),
      executor_(parts_.map, *parts_.backend),
      has_said_goodbye_(static_cast<std::size_t>(parts_.map.size), false) {}

Result<std::unique_ptr<Engine::Impl>> Engine::Impl::create(Parts parts) {
  std::unique_ptr<Impl> impl(new Impl(std::move(parts)));
  HVD_TRY(impl->prepare());
  impl->start_thread();
  return impl;
}

Result<void> Engine::Impl::prepare() {
  HVD_TRY_ASSIGN(queue_, SubmitQueue::create());
  HVD_TRY_ASSIGN(loop_, EventLoop::create(clock_));
  HVD_TRY(loop_->watch(queue_->fd(), EPOLLIN, [this](std::uint32_t) { on_submissions(); }));
  std::vector<ControlChannel::Peer> peers;
  for (int rank = 0; rank < parts_.map.size; ++rank) {
    if (rank != parts_.map.rank && (is_coordinator() || rank == 0)) {
      peers.push_back({rank, parts_.mesh->control_fd(rank)});
    }
  }
  ControlChannel::Handlers handlers;
  handlers.on_frame = [this](int rank, const Frame& frame) { on_frame(rank, frame); };
  handlers.on_end = [this](int rank, const Error& why) { on_link_end(rank, why); };
  HVD_TRY_ASSIGN(channel_, ControlChannel::create(*loop_, peers, std::move(handlers)));
  if (is_coordinator()) {
    coordinator_ = std::make_unique<Coordinator>(
        *loop_,
        Coordinator::Options{parts_.map.size, parts_.options.fusion_threshold_bytes, parts_.options.cycle_time});
  }
  if (parts_.store != nullptr && parts_.store->notice_fd() >= 0) {
    HVD_TRY_ASSIGN(notice_watch_,
                   loop_->watch(parts_.store->notice_fd(), EPOLLIN, [this](std::uint32_t) { on_notice(); }));
  }
  return {};
}

void Engine::Impl::start_thread() {
  // The host's signals (Python's Ctrl-C) belong to the host's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "hvd-engine");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Engine::Impl::~Impl() {
  if (thread_.joinable()) {
    stop_.store(true);
    queue_->wake();
    thread_.join();
  }
}

bool Engine::Impl::is_forked() const {
  return ::getpid() != owner_;
}

Result<std::shared_ptr<Completion>> Engine::Impl::submit(Submission submission) {
  std::vector<Submission> alone;
  alone.push_back(std::move(submission));
  HVD_TRY_ASSIGN(const auto completions, submit_group(std::move(alone)));
  return completions.front();
}

Result<std::vector<std::shared_ptr<Completion>>> Engine::Impl::submit_group(std::vector<Submission> submissions) {
  // Before any lock: the thread that held it when the process was forked does not exist here.
  if (is_forked()) {
    return Error(Code::kNotInitialized,
                 "this process was forked from a rank of a job and is no rank of it; "
                 "use the job from the process that joined it");
  }
  HVD_CHECK(!submissions.empty() && submissions.size() <= control_wire::kMaxGroupTensors);
  for (std::size_t i = 1; i < submissions.size(); ++i) {
    submissions.front().group.push_back(submissions[i].name);
  }
  std::vector<PendingOp> ops;
  std::vector<std::shared_ptr<Completion>> completions;
  for (Submission& submission : submissions) {
    HVD_TRY(check_submission(submission));
    completions.push_back(std::make_shared<Completion>());
    ops.push_back(PendingOp{std::move(submission), completions.back(), std::nullopt});
  }
  HVD_TRY(queue_->push(std::move(ops)));
  return completions;
}

void Engine::Impl::run() {
  while (!is_finished()) {
    if (auto turned = loop_->turn(); !turned.ok()) {
      // Without its loop the engine hears nothing any more: end here what can be ended.
      end_job(turned.error());
      fail_pending();
      return;
    }
    advance();
  }
}

Result<void> Engine::Impl::check() {
  HVD_TRY(loop_->turn(Deadline(TimePoint())));
  if (over_) {
    return *over_;
  }
  return {};
}

}  // namespace hvd
