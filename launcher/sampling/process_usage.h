// ProcessUsage measures what processes and all that they have started use. Which processes these are is looked up in
// all of /proc, and this costs most; so it is done seldom, and between two looks only the known ones are read, with
// what these say of their children.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "launcher/sampling/proc_texts.h"

namespace hvd::launch {

struct Usage {
  int processes = 0;
  std::uint64_t cpu_ms = 0;
  std::uint64_t memory_bytes = 0;
};

class ProcessUsage {
 public:
  // So many measures follow one look at all processes.
  static constexpr int kMeasuresPerLook = 10;

  // Returns the usage of each root. A root that has ended has no processes.
  std::map<pid_t, Usage> measure(const std::vector<pid_t>& roots);
  // What the last measure of a root has counted; 0: there was none.
  [[nodiscard]] std::uint64_t last_cpu_ms(pid_t root) const {
    const auto found = most_ms_.find(root);
    return found == most_ms_.end() ? 0 : found->second;
  }
  // The processes of a root, itself among them, as the last look found them.
  [[nodiscard]] const std::vector<pid_t>& tree(pid_t root) { return trees_[root]; }

 private:
  void look(const std::vector<pid_t>& roots);

  std::vector<pid_t> roots_;                   // of the last look
  std::map<pid_t, std::vector<pid_t>> trees_;  // by root, with the root
  // Time of processes that were seen and have ended without a parent that counts it; a count never goes back.
  std::map<pid_t, std::uint64_t> most_ms_;
  int until_look_ = 0;
};

// The whole node.
std::uint64_t node_cpu_ms();
NodeMemory node_memory();

}  // namespace hvd::launch
