// JobLayout says which processes a job file means, and on which of the hosts each runs. Pure.
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
  int index = 0;  // counts the processes of the same role
};

struct JobLayout {
  HostList nodes;                     // the job's hosts; `slots` counts the processes there, and may be 0
  std::vector<int> slots;             // for each node, as in the host list
  std::vector<std::string> ids;       // for each node; unique, and used in the names of files
  std::vector<JobProcess> processes;  // in the order of their ranks

  [[nodiscard]] int size() const { return static_cast<int>(processes.size()); }
  // Returns each node once, for what runs once on every node.
  [[nodiscard]] Placement node_placement() const;
  // Returns the placement of the processes.
  [[nodiscard]] Placement rank_placement() const;
  // Adds a node that joins the running job, whose ranks are numbered on. A host that comes back keeps its id.
  void add_node(const HostSpec& host, int count);
};

// Takes the first nodeCount hosts and spreads the processes evenly, the first nodes having one more. `processes`
// replaces the file's processCount; 0: it does not. An elastic job takes as many hosts as there are, from minNodes to
// maxNodes, and has the same number of processes on each.
Result<JobLayout> lay_out(const JobFile& job, const HostList& hosts, int processes);

// Returns for each node its host's name as it may be used in a file's name; each is unique. A job's files are found
// again by the same names.
std::vector<std::string> file_ids(const std::vector<std::string>& hosts);

// True for processes that the service started through MPI: they call MPI_Init themselves.
bool needs_mpi(const JobFile& job, const JobLayout& layout);

}  // namespace hvd::launch
