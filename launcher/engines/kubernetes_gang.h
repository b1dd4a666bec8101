// KubernetesGang is the start of a job in pods (gang.h). Nobody is asked to start them: a manifest has made a pod for
// hvdrun and one for each node, whose agent looks hvdrun up by its name and connects. Both ends find the key of the
// call in a file.
//
// Thread: loop only. The EventLoop and the Log outlive it; it outlives the JobRunner that uses its transport.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/engines/gang.h"

namespace hvd::launch {

class KubernetesGang final : public Gang {
 public:
  // `placement`: the nodes by their index, whose names are not known yet. `say` takes a line for the user. kInvalid:
  // the key file is refused.
  static Result<std::unique_ptr<Gang>> create(EventLoop& loop, const JobSpec& job, const Placement& placement, Log& log,
                                              std::function<void(const std::string&)> say);

 private:
  KubernetesGang(EventLoop& loop, const JobSpec& job, const Placement& placement,
                 std::function<void(const std::string&)> say);
  [[nodiscard]] Result<CalledPlacement> place_ranks(const std::vector<ReadyMessage>& facts) const override;

  const Placement wanted_;
  const bool slots_are_gpus_;
};

// Makes a key for a manifest, as read_call_secret() reads it: 64 hex digits.
Result<std::string> make_call_secret();

// Returns `count` hosts that stand for the nodes until their agents have said their names.
HostList unnamed_pods(int count);

// Where the ranks are, once all agents have said which pod each is in (ReadyMessage::host_name), by their index.
// `slots_are_gpus`: each node gets as many ranks as it has GPUs, at least one. Pure. An error names a name that two
// pods have.
Result<CalledPlacement> place_on_pods(const Placement& wanted, bool slots_are_gpus,
                                      const std::vector<ReadyMessage>& facts);

}  // namespace hvd::launch
