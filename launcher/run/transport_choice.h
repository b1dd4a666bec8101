// Which transport reaches which host; the one place that decides it.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"

namespace hvd::launch {

enum class TransportKind : std::uint8_t { kLocal, kSsh, kRsh, kMpirun, kSpark };

// Of this machine, and reached without a login: whoever names a user or an SSH port means another place, as a container
// whose sshd listens here.
bool is_here(const HostSpec& host);
TransportKind choose_transport(const JobSpec& spec, const HostSpec& host);

// "local", "ssh", "rsh", "mpirun", "spark".
std::string transport_name(TransportKind kind);

// The agents of the job, each as a node with the ranks that it has: one for each node, or for each rank under an
// engine. The first rank's node is placement.node_of(rank).
Placement agents_of(const JobSpec& spec, const Placement& placement);

}  // namespace hvd::launch
