#include "launcher/agent/rank_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/other_process.h"

namespace hvd::launch {
namespace {

// A grandchild may hold the pipes of a rank that has ended for no longer than this, so that a forgotten background
// process cannot keep the job from ending. One that was told to end has the time of grace.
constexpr Duration kDrainTime = std::chrono::seconds(2);

StreamId stream_id(Child::Stream stream) {
  return stream == Child::Stream::kOutput ? StreamId::kStdout : StreamId::kStderr;
}

}  // namespace

Result<std::unique_ptr<RankProcess>> RankProcess::start(EventLoop& loop, int rank, SpawnOptions options, Sink sink) {
  Child::Options pipes;
  pipes.is_reaped_elsewhere = true;
  pipes.output_drain = kDrainTime;
  pipes.errors_drain = kDrainTime;
  Child::Handlers handlers;
  handlers.allowance = std::move(sink.allowance);
  handlers.on_output = [rank, tell = std::move(sink.on_output)](Child::Stream stream, std::string_view bytes) {
    tell(rank, stream_id(stream), bytes);
  };
  handlers.on_output_end = [rank, tell = std::move(sink.on_output_end)](Child::Stream stream) {
    tell(rank, stream_id(stream));
  };
  HVD_TRY_ASSIGN(auto child, Child::start(loop, std::move(options), pipes, std::move(handlers)));
  return std::unique_ptr<RankProcess>(new RankProcess(loop, rank, std::move(child)));
}

void RankProcess::stop(int signo, Duration grace) {
  if (signo != SIGKILL && !has_exited()) {
    told_by_ = signo;
  }
  if (was_told()) {
    const Duration left = signo == SIGKILL ? Duration::zero() : grace;
    grace_ends_ = loop_.now() + left;
    child_->set_drains(std::max(left, kDrainTime), std::max(left, kDrainTime));
  }
  child_->signal(signo);
}

bool RankProcess::has_told(pid_t left) const {
  return was_told() && ::getpgid(left) == pid() && !ignores_signal(left, told_by_);
}

void RankProcess::end_drain() {
  child_->set_drains(kDrainTime, kDrainTime);
}

}  // namespace hvd::launch
