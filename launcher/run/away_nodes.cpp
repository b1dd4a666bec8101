#include "launcher/run/away_nodes.h"

#include <algorithm>
#include <vector>

namespace hvd::launch {

void AwayNodes::on_away(int node, const Error& why) {
  if (job_.spec.least_ranks > 0 || job_.spec.fresh.limit > 0) {
    // Silence has been waited for already; a connection that broke may be back at once.
    give_up_in(why.code() == Code::kTimeout ? Duration::zero() : job_.spec.heartbeat * kMissedHeartbeats, node);
  }
}

void AwayNodes::on_back(int node) {
  if (const auto timer = timers_.find(node); timer != timers_.end()) {
    job_.loop.cancel(timer->second);
    timers_.erase(timer);
  }
}

void AwayNodes::stop() {
  for (const auto& [node, timer] : timers_) {
    job_.loop.cancel(timer);
  }
  timers_.clear();
}

void AwayNodes::give_up_in(Duration delay, int node) {
  timers_[node] = job_.loop.after(delay, [this, node] {
    timers_.erase(node);
    give_up(node);
  });
}

// Where this host itself has lost its network no node is in touch, and all of them may come back.
void AwayNodes::give_up(int node) {
  std::vector<int> others;
  for (const auto& session : job_.sessions) {
    for (const RankPlan& rank : session->plan().ranks) {
      if (session->is_in_touch()) {
        others.push_back(rank.rank);
      }
    }
  }
  NodeSession& away = job_.session(node);
  if (job_.state.can_do_with(others) || (!others.empty() && can_start_anew())) {
    away.give_up();
  } else if (away.is_away()) {
    give_up_in(job_.spec.heartbeat, node);
  }
}

bool AwayNodes::can_start_anew() const {
  long long slots = 0;
  for (const HostSpec& host : job_.spec.hosts) {
    const auto is_silent = [&host](const auto& session) {
      return session->plan().host.name == host.name && !session->is_in_touch();
    };
    slots += std::none_of(job_.sessions.begin(), job_.sessions.end(), is_silent) ? host.slots : 0;
  }
  return job_.spec.fresh.before < job_.spec.fresh.limit &&
         slots >= (job_.spec.least_ranks > 0 ? job_.spec.least_ranks : job_.placement.size);
}

}  // namespace hvd::launch
