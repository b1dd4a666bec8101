// JobLayout: which processes a job file means, and on which of the hosts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/job/host_spec.h"
#include "launcher/jobfile/job_file.h"
#include "launcher/placement/placement.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct JobProcess {
  enum class Role : std::uint8_t { kRank, kWorker, kServer };
  int node = 0;
  Role role = Role::kRank;
  int index = 0;  // among those of its role
};

struct JobLayout {
  HostList nodes;                     // nodeCount of the hosts; `slots`: processes there, which may be none
  std::vector<int> slots;             // of each node, as the host list says
  std::vector<std::string> ids;       // of each node, by which files are called; each once
  std::vector<JobProcess> processes;  // in the order of their ranks

  [[nodiscard]] int size() const { return static_cast<int>(processes.size()); }
  // Each node once, for what is done on every node.
  [[nodiscard]] Placement node_placement() const;
  // The processes.
  [[nodiscard]] Placement rank_placement() const;
};

// The first nodeCount hosts; processes are spread evenly, the first nodes having one more. `processes` replaces the
// file's processCount; 0: it does not.
Result<JobLayout> lay_out(const JobFile& job, const HostList& hosts, int processes);

// Started by MPI, where the service did so: they call MPI_Init themselves.
bool needs_mpi(const JobFile& job, const JobLayout& layout);

}  // namespace hvd::launch
