// EngineRun is the part of a job that deals with the engine which starts its agents, if it has one.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <string>

#include "launcher/engines/engine.h"
#include "launcher/run/job_parts.h"

namespace hvd::launch {

class EngineRun {
 public:
  // `engine` may be null: hvdrun starts the agents, and nothing here does anything.
  EngineRun(const JobParts& job, Engine* engine) : job_(job), engine_(engine) {}
  ~EngineRun() { stop(); }
  EngineRun(const EngineRun&) = delete;
  EngineRun& operator=(const EngineRun&) = delete;

  [[nodiscard]] bool is_there() const { return engine_ != nullptr; }
  [[nodiscard]] bool is_running() const { return engine_ != nullptr && engine_->is_running(); }
  // Starts it. `on_over` is called when it has ended, after the job was told.
  void start(std::function<void()> on_over);
  // Ends it; it may still be waiting for a host that does not answer.
  void end();
  // An agent was told to end. It is the engine that ends agents, because it has noticed the failure of a rank, or was
  // itself asked to end. The agent of the failed rank is then about to report the first failure, so the engine's lines
  // are reported only if that report does not come.
  void on_ending(int node, const std::string& why);
  // Not all agents have called back in time.
  void on_start_timeout();
  // The job ends.
  void stop();

 private:
  void on_line(const std::string& line);

  const JobParts& job_;
  Engine* const engine_;
  TimerId settle_timer_ = 0;
};

}  // namespace hvd::launch
