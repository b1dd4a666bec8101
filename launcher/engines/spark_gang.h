// SparkGang is the start of a job under Spark. It listens, tells the driver where the tasks' agents must connect
// (driver_pipe.h), waits until the agents of all tasks have connected, and places the ranks where these are. Afterwards
// it is the transport by which the job's sessions reach the agents, and it reports when the driver or its tasks are
// gone.
//
// Thread: loop only. The EventLoop and the Log outlive it; it outlives the JobRunner that uses its transport.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/engines/called_agents.h"
#include "launcher/engines/driver_pipe.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/dial_back.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class SparkGang {
 public:
  // `is_local`: all of Spark's executors are on this machine. `say` takes a line for the user.
  static Result<std::unique_ptr<SparkGang>> create(EventLoop& loop, const JobSpec& job, bool is_local, Log& log,
                                                   std::function<void(const std::string&)> say);

  // Runs the loop until all agents have connected, for job.start_timeout at most. kTimeout says how many are missing,
  // kCancelled that interrupt() was called; other errors say why the tasks cannot start.
  Result<void> gather();
  // A signal arrived while it gathers.
  void interrupt(const std::string& why);

  // The placement and the transport are valid after gather().
  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] Transport& transport() { return *agents_; }
  // `handler` is called once, when the tasks or the driver have gone.
  void on_gone(std::function<void(const Error&)> handler);

 private:
  SparkGang(EventLoop& loop, const JobSpec& job, std::function<void(const std::string&)> say);
  void stop_for(const Error& why);
  void tell_later();

  EventLoop& loop_;
  const Duration patience_;
  const bool is_quiet_;
  const int count_;
  std::function<void(const std::string&)> say_;
  std::unique_ptr<DialBack> dial_back_;
  std::unique_ptr<CalledAgents> agents_;
  std::unique_ptr<DriverPipe> driver_;
  Placement placement_;
  std::optional<Error> failure_;  // why the gathering ends early
  bool is_gathering_ = false;
  TimerId tell_timer_ = 0;
  std::function<void(const Error&)> on_gone_;
};

}  // namespace hvd::launch
