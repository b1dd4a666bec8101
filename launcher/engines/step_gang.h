// StepGang is the start of a job within an allocation (gang.h): a command of the batch system (step.h) starts an agent
// on each node, and the agents connect to hvdrun. The ranks are where the allocation says.
//
// Thread: loop only. The EventLoop and the Log outlive it; it outlives the JobRunner that uses its transport.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/engines/gang.h"
#include "launcher/engines/step.h"

namespace hvd::launch {

class StepGang final : public Gang {
 public:
  // `placement`: where the ranks are to be, by the allocation's names. `say` takes a line for the user.
  static Result<std::unique_ptr<Gang>> create(EventLoop& loop, const JobSpec& job, StepKind kind,
                                              const Placement& placement, Log& log,
                                              std::function<void(const std::string&)> say);
  ~StepGang() override;
  // Waits for the command, whose agents have ended: one that is killed would kill what is left of them without a word.
  void finish(bool is_whole) override;
  [[nodiscard]] std::string last_words(bool was_told_to_end) const override;

 private:
  StepGang(EventLoop& loop, const JobSpec& job, StepKind kind, const Placement& placement, Log& log,
           std::function<void(const std::string&)> say);
  [[nodiscard]] Result<CalledPlacement> place_ranks(const std::vector<ReadyMessage>& facts) const override;
  Result<void> start(const JobSpec& job);
  void take_line(const std::string& line);

  const StepKind kind_;
  const Placement wanted_;
  const bool slots_are_gpus_;
  const std::string job_;  // its number
  const int gpus_;         // of the job, if the step has all of its nodes; 0: not known
  Log& log_;
  std::unique_ptr<Engine> step_;
  bool is_finishing_ = false;
  TimerId quick_start_ = 0;  // while it runs, the command's lines are held
  std::vector<std::string> held_lines_;
  EndReason end_reason_;
};

// Where the ranks are, once all agents have said on which node each is (ReadyMessage::host_name). `slots_are_gpus`:
// each node gets as many ranks as it has GPUs, at least one. Pure. An error names a node that nobody asked for, where
// the command does not choose the nodes itself.
Result<CalledPlacement> place_on_nodes(const Placement& wanted, const StepKind& kind, bool slots_are_gpus,
                                       const std::vector<ReadyMessage>& facts);

}  // namespace hvd::launch
