// Gang is the start of a job whose agents an engine starts (Spark, Slurm, jsrun, Kubernetes). It listens, waits until
// the agents of all the engine's tasks have connected, and places the ranks where these are. Afterwards it is the
// transport by which the job's sessions reach the agents, and it reports when the engine's tasks are gone. What differs
// between engines is how the tasks are started, and the placement: one file each (spark_gang.h, step_gang.h,
// kubernetes_gang.h).
//
// Thread: loop only. The EventLoop and the Log outlive it; it outlives the JobRunner that uses its transport.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/engines/called_agents.h"
#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/dial_back.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class Gang {
 public:
  // For messages: "waiting for NAME: 1 of 4 TASKs have started", and what to look at when they do not.
  struct Words {
    std::string engine;
    std::string task;
    std::string advice;
  };

  virtual ~Gang() = default;
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  // Runs the loop until all agents have connected, for job.start_timeout at most. kTimeout says how many are missing,
  // kCancelled that interrupt() was called; other errors say why the tasks cannot start.
  Result<void> gather();
  // A signal arrived while it gathers, or finishes.
  void interrupt(const std::string& why);

  // The placement and the transport are valid after gather().
  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] Transport& transport() { return *agents_; }
  // `handler` is called once, when the engine's tasks have gone.
  void on_gone(std::function<void(const Error&)> handler);
  // The job is over: gives the engine time to end by itself. Call it when no session is left. `is_whole`: no node was
  // lost, for which the engine might wait in vain.
  virtual void finish(bool /*is_whole*/) {}
  // Returns what the engine has said of why it ended the agents, for the user of a job that has failed; empty: nothing.
  // `was_told_to_end`: by a signal to hvdrun or an agent.
  [[nodiscard]] virtual std::string last_words(bool /*was_told_to_end*/) const { return ""; }

 protected:
  // `count`: how many agents connect. `say` takes a line for the user.
  Gang(EventLoop& loop, const JobSpec& job, int count, Words words, std::function<void(const std::string&)> say);

  // Listens for the agents; the options' key and the place are what they are to be given.
  Result<void> listen(const DialBackOptions& options, Log& log);
  [[nodiscard]] CallPlace place() const { return dial_back_->place(); }
  // The tasks, or what started them, have gone.
  void on_over(const Error& why);
  void tell(const std::string& line) const;
  [[nodiscard]] EventLoop& loop() { return loop_; }
  [[nodiscard]] int count() const { return count_; }

  // Says where the ranks are, when all agents have reported.
  [[nodiscard]] virtual Result<CalledPlacement> place_ranks(const std::vector<ReadyMessage>& facts) const = 0;

 private:
  void stop_for(const Error& why);
  void tell_later();
  [[nodiscard]] std::string tasks_text() const;

  EventLoop& loop_;
  const Duration patience_;
  const bool is_quiet_;
  const int count_;
  const Words words_;
  std::function<void(const std::string&)> say_;
  std::unique_ptr<DialBack> dial_back_;
  std::unique_ptr<CalledAgents> agents_;
  Placement placement_;
  std::optional<Error> failure_;  // why the gathering ends early
  bool is_gathering_ = false;
  TimerId tell_timer_ = 0;
  std::function<void(const Error&)> on_gone_;
};

}  // namespace hvd::launch
