#include "launcher/transport/transport_choice.h"

#include "launcher/transport/local.h"

namespace hvd::launch {

bool is_here(const HostSpec& host) {
  return is_local_host(host.name) && host.user.empty() && host.port == 0;
}

TransportKind choose_transport(const JobSpec& spec, const HostSpec& host) {
  if (spec.launcher == LauncherKind::kMpi) {
    return TransportKind::kMpirun;
  }
  if (spec.launcher == LauncherKind::kSlurm) {
    return TransportKind::kSlurm;
  }
  if (spec.launcher == LauncherKind::kJsrun) {
    return TransportKind::kJsrun;
  }
  if (spec.launcher == LauncherKind::kSpark) {
    return TransportKind::kSpark;
  }
  if (spec.launcher == LauncherKind::kKubernetes) {
    return TransportKind::kKubernetes;
  }
  if (is_here(host)) {
    return TransportKind::kLocal;
  }
  return spec.rsh_command.empty() ? TransportKind::kSsh : TransportKind::kRsh;
}

std::string transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kLocal:
      return "local";
    case TransportKind::kSsh:
      return "ssh";
    case TransportKind::kRsh:
      return "rsh";
    case TransportKind::kMpirun:
      return "mpirun";
    case TransportKind::kSlurm:
      return "slurm";
    case TransportKind::kJsrun:
      return "jsrun";
    case TransportKind::kSpark:
      return "spark";
    case TransportKind::kKubernetes:
      return "kubernetes";
  }
  return "?";
}

Placement agents_of(const JobSpec& spec, const Placement& placement) {
  const bool has_one_per_rank = spec.launcher == LauncherKind::kMpi || spec.launcher == LauncherKind::kSpark;
  return has_one_per_rank ? one_node_per_rank(placement) : placement;
}

}  // namespace hvd::launch
