// NodeSampler tells the launcher, at an interval that the launcher chooses, what this node's ranks use and do. While
// nobody wants to know it does nothing.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/process/exit_status.h"
#include "launcher/sampling/activity_reader.h"
#include "launcher/sampling/gpu_watch.h"
#include "launcher/sampling/process_usage.h"
#include "launcher/wire/sample_messages.h"
#include "runtime/base/clock.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class NodeSampler {
 public:
  struct Sink {
    std::function<std::vector<std::pair<int, pid_t>>()> ranks;  // that run, with their processes
    std::function<void(const SampleMessage&)> send;
  };

  // `environment`: the agent's own.
  NodeSampler(EventLoop& loop, std::vector<std::string> environment, Sink sink)
      : loop_(loop), environment_(std::move(environment)), sink_(std::move(sink)) {}
  ~NodeSampler() { loop_.cancel(timer_); }
  NodeSampler(const NodeSampler&) = delete;
  NodeSampler& operator=(const NodeSampler&) = delete;

  // The node has GPUs, so they are watched too.
  void set_has_gpus(bool has_gpus) { has_gpus_ = has_gpus; }
  // Samples follow each other in this time, and the first one comes soon; zero: none comes any more.
  void watch(Duration interval, bool wants_gpus);
  // The process of this rank was reaped: what it has counted since the last sample is told while that is still known.
  void tell_last(int rank, pid_t pid);
  // A child of this process was reaped. Returns false when it was not one of the sampler's.
  bool on_exited(pid_t pid, const ExitStatus& status) { return gpus_ != nullptr && gpus_->on_exited(pid, status); }
  [[nodiscard]] bool owns(pid_t pid) const { return gpus_ != nullptr && gpus_->owns(pid); }

 private:
  void sample();

  // constant after construction
  EventLoop& loop_;
  const std::vector<std::string> environment_;
  const Sink sink_;
  // loop only
  bool has_gpus_ = false;
  Duration interval_{};
  TimerId timer_ = 0;
  ProcessUsage usage_;
  ActivityReader activity_;
  std::unique_ptr<GpuWatch> gpus_;  // null: nobody watches, or there are no GPUs
};

}  // namespace hvd::launch
