// GrantedNodes is the HostSource of a job of the service: the nodes of its cluster that the job has. It asks for more
// of them whenever some may have become idle, and gives those back that are drained, once nothing of the job is there.
//
// The store must not wait for other processes (LoopWrites): what it refuses is tried again, and told if it lasts.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "launcher/offers/host_source.h"
#include "launcher/service/job_store.h"
#include "launcher/service/state_dir.h"
#include "runtime/base/clock.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class GrantedNodes final : public HostSource {
 public:
  // The loop, `dir` and `store` must outlive it. `hosts`: of the cluster, with the slots that the job gives them;
  // `first`: those that the job begins with.
  GrantedNodes(EventLoop& loop, const StateDir& dir, JobStore& store, std::int64_t job, HostList hosts, HostList first);
  ~GrantedNodes() override;

  void start(Handlers handlers) override;
  void stop() override;
  void note_use(const HostUse& use) override;

 private:
  void look();
  void look_in(Duration delay);
  // Returns when to look again, if nothing wakes us before.
  Result<Duration> update();

  EventLoop& loop_;
  const StateDir& dir_;
  JobStore& store_;
  const std::int64_t job_;
  const HostList hosts_;
  Handlers handlers_;
  std::optional<FolderWatch> watch_;
  WatchId watch_id_ = 0;
  TimerId timer_ = 0;
  bool is_on_ = false;
  bool was_woken_ = false;
  bool is_to_retry_ = false;    // a job whose supervisor has died could not be helped
  std::optional<HostUse> use_;  // nothing: not known yet, and no node is given back
  HostList known_;
  std::optional<TimePoint> failing_since_;
  std::string told_;  // the last trouble
};

}  // namespace hvd::launch
