// This part of AgentCore starts a failed rank again.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/agent/agent_core.h"
#include "launcher/process/descendants.h"

namespace hvd::launch {

Result<void> AgentCore::on_restart(const Frame& frame) {
  HVD_TRY_ASSIGN(RestartMessage restart, RestartMessage::decode(frame.body));
  if (!has_started_ || is_stopping_) {
    return {};
  }
  epoch_ = restart.epoch;
  hub_->turn_away(restart.cause);
  if (restart.start) {
    again_.push_back(std::move(*restart.start));
    start_again();
  }
  return {};
}

void AgentCore::start_again() {
  for (auto waiting = again_.begin(); waiting != again_.end();) {
    const int rank = waiting->ranks.front().rank;
    const auto last = std::find_if(ranks_.begin(), ranks_.end(), [rank](const auto& p) { return p->rank() == rank; });
    if (last != ranks_.end() && !(*last)->is_finished()) {
      end_orphans_of(**last);  // they may be what holds its pipes open
      ++waiting;
      continue;
    }
    if (last != ranks_.end()) {
      end_orphans_of(**last);
      ranks_.erase(last);
    }
    const StartMessage start = std::move(*waiting);
    waiting = again_.erase(waiting);
    if (auto started = start_rank(start, start.ranks.front()); !started.ok()) {
      send(AgentMessage::kStartFailed, StartFailedMessage{rank, started.error()}.encode());
    }
  }
}

void AgentCore::end_orphans_of(const RankProcess& process) {
  if (!process.has_exited()) {
    return;
  }
  // A rank leads its process group, and what it leaves comes to this process as to a subreaper.
  std::vector<pid_t> orphans = left_behind();
  std::erase_if(orphans, [&process](pid_t pid) { return ::getpgid(pid) != process.pid(); });
  signal_children(orphans, SIGKILL);
}

}  // namespace hvd::launch
