#include "launcher/run/job_deadlines.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace hvd::launch {
namespace {

// Nodes sample as often as hvdrun looks, but not at the same moments. So a stall is found two such times later at most,
// which is a quarter of its limit.
constexpr int kLooksPerStall = 8;

Duration stall_interval(Duration stall_after) {
  return std::max<Duration>(JobWatch::kInterval, stall_after / kLooksPerStall);
}

}  // namespace

void JobDeadlines::act(const AwaitCause&) {
  job_.loop.cancel(cause_timer_);
  cause_timer_ = job_.loop.after(job_.spec.grace, [this] {
    cause_timer_ = 0;
    if (!lose_silent_nodes()) {
      job_.apply(CauseDue{});
    }
  });
}

// Ranks notice that a host is gone before its connection to here is given up, and have failed because of it by now. An
// elastic job loses such nodes by rules of its own (AwayNodes).
bool JobDeadlines::lose_silent_nodes() {
  const auto is_heard = [](const auto& session) { return session->is_in_touch(); };
  const bool is_elastic = job_.spec.least_ranks > 0 || job_.spec.fresh.limit > 0;
  if (is_elastic || std::none_of(job_.sessions.begin(), job_.sessions.end(), is_heard)) {
    return false;
  }
  std::vector<NodeSession*> silent;
  for (const auto& session : job_.sessions) {
    if (session->is_unfinished() && !session->is_in_touch()) {
      silent.push_back(session.get());
    }
  }
  for (NodeSession* const session : silent) {
    session->give_up();
  }
  return !silent.empty();
}

void JobDeadlines::act(const AwaitEnd& action) {
  TimerId& timer = end_timers_[action.rank];
  job_.loop.cancel(timer);
  timer = job_.loop.after(job_.spec.grace, [this, action] {
    end_timers_.erase(action.rank);
    job_.apply(RankOverdue{action.rank, action.pid});
  });
}

void JobDeadlines::act(const AwaitHosts&) {
  if (hosts_timer_ == 0) {
    hosts_timer_ = job_.loop.after(job_.spec.elastic_timeout, [this] {
      hosts_timer_ = 0;
      job_.apply(HostsDue{});
    });
  }
}

void JobDeadlines::on_formed() {
  job_.loop.cancel(std::exchange(hosts_timer_, 0));
}

void JobDeadlines::begin_timeout() {
  if (job_.spec.timeout > Duration::zero()) {
    timeout_timer_ = job_.loop.after(job_.spec.timeout, [this] {
      timeout_timer_ = 0;
      const std::string& setting = job_.spec.timeout_setting;
      stacks_.report(setting, [this, setting] { job_.apply(TimedOut{setting}); });
    });
  }
  if (job_.spec.stall_after > Duration::zero() && stall_timer_ == 0) {
    watch_.watch_ranks(stall_interval(job_.spec.stall_after));
    look_for_stalls();
  }
}

void JobDeadlines::look_for_stalls() {
  if (job_.is_ending()) {
    stall_timer_ = 0;
    return;  // its ranks wait for those that have been stopped
  }
  stall_timer_ = job_.loop.after(stall_interval(job_.spec.stall_after), [this] { look_for_stalls(); });
  if (const auto stall = stalls_.look(watch_.picture())) {
    stacks_.report(*stall, [] {});
  }
}

void JobDeadlines::on_continued() {
  if (stall_timer_ != 0) {
    job_.loop.cancel(stall_timer_);
    stall_timer_ = job_.loop.after(job_.spec.stall_after, [this] { look_for_stalls(); });
  }
}

void JobDeadlines::stop() {
  job_.loop.cancel(std::exchange(timeout_timer_, 0));
  job_.loop.cancel(std::exchange(stall_timer_, 0));
  job_.loop.cancel(std::exchange(cause_timer_, 0));
  job_.loop.cancel(std::exchange(hosts_timer_, 0));
  for (const auto& [rank, timer] : end_timers_) {
    job_.loop.cancel(timer);
  }
  end_timers_.clear();
}

}  // namespace hvd::launch
