#include "launcher/service/granted_nodes.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/service/supervisor.h"

namespace hvd::launch {
namespace {

constexpr auto kLongestSleep = std::chrono::hours(1);
constexpr auto kPollWithoutWatch = std::chrono::seconds(3);
constexpr auto kRetryAfter = std::chrono::seconds(1);
// A process that wakes us may be about to die, which frees its lock, and what it had, a moment later.
constexpr auto kLookOnceMore = std::chrono::seconds(1);

}  // namespace

GrantedNodes::GrantedNodes(EventLoop& loop, const StateDir& dir, JobStore& store, std::int64_t job, HostList hosts,
                           HostList first)
    : loop_(loop), dir_(dir), store_(store), job_(job), hosts_(std::move(hosts)), known_(std::move(first)) {}

GrantedNodes::~GrantedNodes() {
  stop();
}

void GrantedNodes::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  is_on_ = true;
  auto watch = FolderWatch::on(dir_.locks());
  if (watch.ok() && watch.value().fd() >= 0) {
    watch_ = std::move(watch).value();
    auto id = loop_.watch(watch_->fd(), EPOLLIN, [this](std::uint32_t) {
      watch_->take_news();
      was_woken_ = true;
      if (!is_to_retry_) {  // else the attempt itself wakes this job again and again
        look_in(Duration::zero());
      }
    });
    watch_id_ = id.ok() ? id.value() : 0;
  }
  look_in(Duration::zero());
}

void GrantedNodes::stop() {
  is_on_ = false;
  loop_.cancel(std::exchange(timer_, 0));
  if (watch_id_ != 0) {
    loop_.unwatch(std::exchange(watch_id_, 0));
  }
  watch_.reset();
}

void GrantedNodes::note_use(const HostUse& use) {
  use_ = use;
  look_in(Duration::zero());
}

void GrantedNodes::look_in(Duration delay) {
  if (is_on_) {
    loop_.cancel(timer_);
    timer_ = loop_.after(delay, [this] {
      timer_ = 0;
      look();
    });
  }
}

void GrantedNodes::look() {
  const bool was_woken = std::exchange(was_woken_, false);
  auto next = update();
  failing_since_ = next.ok() ? std::nullopt : std::optional(failing_since_.value_or(loop_.now()));
  // Another process that writes just now is no trouble.
  const bool lasts = failing_since_ && loop_.now() - *failing_since_ >= Database::kPatience;
  if (lasts && std::exchange(told_, next.error().message()) != next.error().message()) {
    handlers_.on_trouble("which nodes the job has cannot be read: " + told_);
  }
  Duration wait = next.ok() && !is_to_retry_ ? next.value() : Duration(kRetryAfter);
  wait = watch_id_ == 0 ? std::min<Duration>(wait, kPollWithoutWatch) : wait;
  look_in(was_woken ? std::min<Duration>(wait, kLookOnceMore) : wait);
}

Result<Duration> GrantedNodes::update() {
  is_to_retry_ = false;
  HVD_TRY_ASSIGN(JobRecord own, store_.job(job_));
  if (own.state != ExecutionState::kRunning) {
    return Duration(kLongestSleep);
  }
  const auto count = [&own] { return static_cast<int>(own.nodes.size()); };
  if (count() < own.max_nodes) {
    // Who else would find that a job with nodes for us has died? Where it cannot be helped, this job goes on.
    is_to_retry_ = !recover(dir_, store_).ok();
    HVD_TRY_ASSIGN(const bool may_grow, store_.is_turn(job_));
    if (may_grow) {
      HVD_TRY(store_.grow(job_));
      dir_.wake();
    }
  }
  HVD_TRY_ASSIGN(const std::vector<NodeRecord> nodes, store_.nodes_of_job(job_));
  HostList hosts;
  bool has_freed = false;
  for (const NodeRecord& node : nodes) {
    const std::string& name = node.host.name;
    const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&name](const HostSpec& h) { return h.name == name; });
    if (!node.is_drained && host != hosts_.end()) {
      hosts.push_back(*host);
    } else if (use_ && !use_->used.contains(name)) {
      HVD_TRY(store_.give_back(job_, name, use_->lost.contains(name)));
      has_freed = true;
    }
  }
  if (has_freed) {
    dir_.wake();
  }
  if (hosts != known_) {
    known_ = hosts;
    handlers_.on_hosts(hosts);
  }
  HVD_TRY_ASSIGN(const std::int64_t idle_ms, store_.clusters().next_idle_ms(own.cluster, job_));
  if (idle_ms == 0) {
    return Duration(kLongestSleep);
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto left = std::chrono::milliseconds(idle_ms) - std::chrono::duration_cast<std::chrono::milliseconds>(now);
  return std::clamp<Duration>(left, std::chrono::milliseconds(1), kLongestSleep);
}

}  // namespace hvd::launch
