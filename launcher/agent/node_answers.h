// NodeAnswers answers what the launcher asks about this node: how it is (NodeCheck), where its ranks are (StackReader),
// and what they use and do (NodeSampler). It changes nothing of the job, and the job goes on without it.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/agent/stack_reader.h"
#include "launcher/process/exit_status.h"
#include "launcher/sampling/node_sampler.h"
#include "launcher/survey/node_check.h"
#include "launcher/wire/messages.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class NodeAnswers {
 public:
  struct Sink {
    std::function<std::vector<std::pair<int, pid_t>>()> ranks;  // that run, with their processes
    std::function<void(AgentMessage type, std::string_view body)> send;
  };

  // `environment`: the agent's own.
  NodeAnswers(EventLoop& loop, std::vector<std::string> environment, Sink sink);
  NodeAnswers(const NodeAnswers&) = delete;
  NodeAnswers& operator=(const NodeAnswers&) = delete;

  // The node has GPUs, so samples are to have them too.
  void set_has_gpus(bool has_gpus) { sampler_->set_has_gpus(has_gpus); }
  // The launcher has made itself known: it may ask for a check and for stacks from now on.
  void admit(const JobSecret& secret);
  // Says whether a message is a question that can be answered now.
  [[nodiscard]] bool takes(AgentMessage type) const;
  // Call it for what it takes. An error is the launcher's fault, and ends the session.
  Result<void> on_question(AgentMessage type, std::string_view body);
  // The process of this rank was reaped: its last sample is told.
  void tell_last(int rank, pid_t pid);
  // A child of this process was reaped. Returns false when no sample was made by it.
  bool on_exited(pid_t pid, const ExitStatus& status);
  // Says whether this child makes samples, so that no rank has left it.
  [[nodiscard]] bool owns(pid_t pid) const { return sampler_ != nullptr && sampler_->owns(pid); }
  // The ranks have ended. What makes samples ends too, or it would be taken for something that ranks have left.
  void stop_sampling() { sampler_.reset(); }
  // There is nobody to answer to.
  void let_go();

 private:
  // constant after construction
  EventLoop& loop_;
  const std::vector<std::string> environment_;
  const Sink sink_;
  // loop only
  std::unique_ptr<NodeCheck> check_;      // from admit() on
  std::unique_ptr<StackReader> stacks_;   // likewise
  std::unique_ptr<NodeSampler> sampler_;  // null once the ranks have ended
};

}  // namespace hvd::launch
