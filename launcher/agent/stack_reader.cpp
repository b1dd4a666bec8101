#include "launcher/agent/stack_reader.h"

#include <algorithm>

#include "launcher/sampling/activity_reader.h"
#include "launcher/survey/own_stacks.h"

namespace hvd::launch {
namespace {

// More at a time would take processors from the ranks.
constexpr std::size_t kAtOnce = 4;
// One rank that cannot be read must not take the time of the others.
constexpr Duration kForOne = std::chrono::seconds(5);
constexpr Duration kErrandSlack = std::chrono::milliseconds(500);
// An operation that is younger may end at any moment, and says nothing of where the rank is.
constexpr std::uint64_t kWaitsMs = 1000;

std::string operation_of(pid_t rank, pid_t python) {
  const auto runtime = ActivityReader().read(rank, {rank, python});
  const bool waits = runtime && !runtime->operation.empty() && runtime->for_ms >= kWaitsMs;
  return waits ? runtime->operation + " '" + runtime->tensor + "'" : "";
}

}  // namespace

void StackReader::ask(const StacksRequest& request, std::vector<std::pair<int, pid_t>> ranks) {
  errands_.clear();
  request_ = request;
  deadline_ = Deadline::after(std::chrono::milliseconds(request.patience_ms));
  left_ = std::move(ranks);
  std::reverse(left_.begin(), left_.end());
  go_on();
}

void StackReader::go_on() {
  while (errands_.size() < kAtOnce && !left_.empty()) {
    const auto [rank, pid] = left_.back();
    left_.pop_back();
    read(rank, pid);
  }
}

void StackReader::read(int rank, pid_t pid) {
  const Deadline deadline(std::min(deadline_.at(), Deadline::after(kForOne).at()));
  const auto answer = [this, rank, pid](RankStacks stacks, const std::string& why) {
    stacks.number = request_.number;
    stacks.rank = rank;
    stacks.pid = stacks.pid > 0 ? stacks.pid : pid;
    stacks.why = why.empty() ? stacks.why : why;
    stacks.waits = operation_of(pid, stacks.pid);
    send_(stacks);
  };
  const auto work = [&](int) { return own_stacks(pid, request_.is_native, environment_, deadline).encode(); };
  const auto done = [this, rank, pid, answer](const Result<std::string>& bytes) {
    const auto stacks = bytes.ok() ? RankStacks::decode(bytes.value()) : Result<RankStacks>(bytes.error());
    RankStacks nothing;
    nothing.kernel = stacks.ok() ? "" : kernel_view(pid);
    answer(stacks.ok() ? stacks.value() : nothing, stacks.ok() ? "" : stacks.error().message());
    errands_.erase(rank);
    go_on();
  };
  auto errand = Errand::start(loop_, deadline.at() - loop_.now() + kErrandSlack, Fd(), work, done);
  if (!errand.ok()) {
    return answer({}, errand.error().message());
  }
  errands_[rank] = std::move(errand).value();
}

}  // namespace hvd::launch
