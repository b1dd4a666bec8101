// These functions choose which transport reaches which host. No other place decides it.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"

namespace hvd::launch {

enum class TransportKind : std::uint8_t { kLocal, kSsh, kRsh, kMpirun, kSlurm, kJsrun, kSpark, kKubernetes };

// Returns true for a host that is this machine and needs no login to reach. A user or an SSH port in its name means
// another place, such as a container whose sshd listens here.
bool is_here(const HostSpec& host);
TransportKind choose_transport(const JobSpec& spec, const HostSpec& host);

// "local", "ssh", "rsh", "mpirun", "slurm", "jsrun", "spark", "kubernetes".
std::string transport_name(TransportKind kind);

// Returns the agents of the job, each as a node with the ranks that it supervises: one agent per node, or one per rank
// under mpirun and Spark. The first rank's node is placement.node_of(rank).
Placement agents_of(const JobSpec& spec, const Placement& placement);

}  // namespace hvd::launch
