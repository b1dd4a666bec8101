// GpuWatch knows what the node's GPUs do, by one nvidia-smi that prints it every second for as long as this object
// lives: the static agent cannot load NVIDIA's library. Where there is no nvidia-smi, there are no GPUs to tell of.
//
// Thread: loop only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/child.h"
#include "launcher/sampling/proc_texts.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class GpuWatch {
 public:
  // `environment`: the agent's own. The owner reaps the children of this process (on_exited).
  GpuWatch(EventLoop& loop, const std::vector<std::string>& environment);

  // The last rows, by the numbers of the GPUs.
  [[nodiscard]] std::vector<GpuSample> gpus() const;
  // A child of this process was reaped. Returns false when it was not this one's.
  bool on_exited(pid_t pid, const ExitStatus& status);
  [[nodiscard]] bool owns(pid_t pid) const { return child_ != nullptr && child_->pid() == pid; }

 private:
  void take(std::string_view bytes);

  std::string line_;
  std::map<int, GpuSample> gpus_;
  std::unique_ptr<Child> child_;  // null: there is no nvidia-smi, or it has ended
};

}  // namespace hvd::launch
