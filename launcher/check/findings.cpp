#include "launcher/check/findings.h"

#include <signal.h>

#include <algorithm>
#include <optional>

#include "launcher/check/host_findings.h"
#include "launcher/check/link_findings.h"
#include "launcher/check/shared_findings.h"
#include "launcher/placement/gpu_pinning.h"
#include "launcher/state/exit_codes.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

bool is_loopback(const std::string& address) {
  return address.compare(0, 4, "127.") == 0 || address == "::1";
}

void find_unreached(const CheckResult& result, Findings& findings) {
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    const CheckedHost& checked = result.hosts[host];
    if (!checked.error) {
      continue;
    }
    const bool was_ready = checked.ready.has_value();
    const std::string prefix = checked.name() + ": ";
    const std::string& message = checked.error->message();
    Finding finding;
    finding.subject = was_ready ? Subject::kAgent : Subject::kReach;
    finding.is_problem = true;
    // As the job's: a host that is there and cannot take part keeps the ranks from being started.
    finding.exit_code = !was_ready                                 ? exit_code::kUnreachable
                        : checked.error->code() == Code::kResource ? exit_code::kStartFailed
                                                                   : exit_code::kNodeLost;
    finding.hosts = {static_cast<int>(host)};
    finding.what = message.compare(0, prefix.size(), prefix) == 0 ? message : prefix + message;
    findings.push_back(std::move(finding));
  }
  warn_where(
      result, findings,
      [](const CheckedHost& h) {
        return h.ready && !h.error && !(h.clock && h.system && h.software && h.software->error.empty());
      },
      [](const CheckedHost&, const std::string& names) {
        return warning(Subject::kAnswer, names + ": not all of the questions were answered in time",
                       "look there for a file system or a driver that hangs (df, nvidia-smi)");
      });
}

void find_skew(const CheckResult& result, Findings& findings) {
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    const CheckedHost& checked = result.hosts[host];
    if (!checked.clock) {
      continue;
    }
    const Duration size = checked.clock->offset < Duration::zero() ? -checked.clock->offset : checked.clock->offset;
    // The true offset is at least this large.
    if (size - checked.clock->uncertainty > kMostSkew) {
      findings.push_back(warning(
          Subject::kClock, {static_cast<int>(host)},
          checked.name() + ": its clock is " + duration_text(size) +
              (checked.clock->offset < Duration::zero() ? " behind" : " ahead of") + " this machine's",
          "times in logs will not fit, and certificates may be refused; start a time service there (timedatectl "
          "set-ntp true, chronyd)"));
    }
  }
}

void find_few_processors(const CheckResult& result, Findings& findings) {
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    const CheckedHost& checked = result.hosts[host];
    if (!checked.system) {
      continue;
    }
    const double limit = checked.system->processor_limit;
    const double all = checked.system->processors;
    const double usable = limit > 0 ? std::min(limit, all) : all;
    const auto slots = checked.plan.local_size();
    if (slots > usable) {
      const bool is_cgroup = limit > 0 && limit < all;
      findings.push_back(warning(Subject::kProcessors, {static_cast<int>(host)},
                                 checked.name() + ": " + std::to_string(slots) + " ranks would share " +
                                     formatted("%.3g", usable) + (usable == 1 ? " processor" : " processors") +
                                     (is_cgroup ? ", which is what its cgroup leaves" : ""),
                                 is_cgroup ? "raise the container's or the batch system's limit, or give fewer slots"
                                           : "give the host fewer slots"));
    }
  }
}

void find_low_memory(const CheckResult& result, Findings& findings) {
  warn_where(
      result, findings,
      [](const CheckedHost& h) {
        return h.system && std::min(h.system->memory_free, h.system->memory_limit) < kLeastMemory;
      },
      [](const CheckedHost&, const std::string& names) {
        return warning(Subject::kMemory, names + ": less than " + megabytes(kLeastMemory) + " of memory are left",
                       "end what uses it (ps aux --sort -rss), or leave the host out");
      });
}

void find_gpu_faults(const CheckResult& result, Findings& findings) {
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    const CheckedHost& checked = result.hosts[host];
    if (!checked.ready) {
      continue;
    }
    const auto gpus = gpus_of_job(checked.plan, checked.ready->gpus);
    if (!gpus.ok()) {
      findings.push_back({Subject::kGpus,
                          true,
                          exit_code::kStartFailed,
                          {static_cast<int>(host)},
                          checked.name() + ": " + gpus.error().message(),
                          ""});
    } else if (const std::string text = gpu_warning(result.gpus, checked.plan, gpus.value()); !text.empty()) {
      findings.push_back(warning(Subject::kGpus, {static_cast<int>(host)}, text, "give the host fewer slots"));
    }
  }
  warn_of_difference(
      result, findings, Subject::kGpus, "the number of GPUs is",
      [](const CheckedHost& h) { return h.ready ? std::optional(std::to_string(h.ready->gpus.size())) : std::nullopt; },
      "give each host as many slots as it has GPUs, as in -H a:8,b:4");
  warn_of_difference(
      result, findings, Subject::kGpus, "the GPU driver is",
      [](const CheckedHost& h) {
        return h.software && !h.software->driver.empty() ? std::optional(h.software->driver) : std::nullopt;
      },
      "install one version of it everywhere");
}

void find_address_faults(const CheckResult& result, Findings& findings) {
  if (result.hosts.size() < 2) {
    return;
  }
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.ready && is_loopback(h.address); },
      [](const CheckedHost&, const std::string& names) {
        return problem(Subject::kAddress, exit_code::kUnreachable,
                       names + ": its address for the other hosts is loopback, which leads each to itself",
                       "name it by its address in the network, in place of localhost");
      });
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.system && is_loopback(h.system->own_name_address); },
      [](const CheckedHost& first, const std::string& names) {
        return warning(Subject::kAddress,
                       names + ": its own name means " + first.system->own_name_address + " in its /etc/hosts",
                       "hvdrun does not mind, but libraries that look their own name up (Gloo, some MPI) call "
                       "themselves; put the address of the network there");
      });
}

std::optional<std::string> mtu_of(const CheckedHost& host) {
  const InterfaceSurvey* interface = data_interface(host);
  return interface != nullptr ? std::optional(std::to_string(interface->mtu)) : std::nullopt;
}

std::optional<std::string> speed_of(const CheckedHost& host) {
  const InterfaceSurvey* interface = data_interface(host);
  return interface != nullptr && interface->speed_mbit > 0
             ? std::optional(std::to_string(interface->speed_mbit) + " Mbit/s")
             : std::nullopt;
}

void find_interface_faults(const CheckResult& result, Findings& findings) {
  warn_of_difference(result, findings, Subject::kMtu, "the MTU is", mtu_of,
                     "large packets may be dropped on the way; set one MTU on all (ip link set IF mtu N)");
  warn_of_difference(result, findings, Subject::kInterfaceSpeed, "the speed of the network interface is", speed_of,
                     "the slowest host sets the pace; is another interface there the fast one?");
}

void find_port_faults(const CheckResult& result, Findings& findings) {
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.system && !h.system->listen_error.empty(); },
      [](const CheckedHost& first, const std::string& names) {
        return problem(Subject::kPorts, exit_code::kStartFailed,
                       names + ": no TCP port can be opened: " + first.system->listen_error,
                       "end what holds the ports (ss -tan), or widen net.ipv4.ip_local_port_range");
      });
  const auto has_few = [](const CheckedHost& h) {
    return h.system && h.system->listen_error.empty() && h.system->last_port > 0 &&
           h.system->last_port - h.system->first_port + 1 - h.system->used_ports < kLeastPorts;
  };
  warn_where(result, findings, has_few, [](const CheckedHost&, const std::string& names) {
    return warning(Subject::kPorts, names + ": fewer than " + std::to_string(kLeastPorts) + " TCP ports are free",
                   "end what holds them (ss -tan), or widen net.ipv4.ip_local_port_range");
  });
}

}  // namespace

const char* name_of(Subject subject) {
  switch (subject) {
    case Subject::kReach:
      return "reach";
    case Subject::kAgent:
      return "agent";
    case Subject::kAnswer:
      return "answer";
    case Subject::kClock:
      return "clock";
    case Subject::kProcessors:
      return "processors";
    case Subject::kMemory:
      return "memory";
    case Subject::kGpus:
      return "gpus";
    case Subject::kAddress:
      return "address";
    case Subject::kMtu:
      return "mtu";
    case Subject::kInterfaceSpeed:
      return "interface_speed";
    case Subject::kPorts:
      return "ports";
    case Subject::kSystem:
      return "system";
    case Subject::kLimits:
      return "limits";
    case Subject::kSpace:
      return "space";
    case Subject::kProgram:
      return "program";
    case Subject::kScript:
      return "script";
    case Subject::kMpirun:
      return "mpirun";
    case Subject::kLink:
      return "link";
    case Subject::kSpeed:
      return "speed";
  }
  return "?";
}

const InterfaceSurvey* data_interface(const CheckedHost& host) {
  if (!host.system || host.address.empty()) {
    return nullptr;
  }
  for (const InterfaceSurvey& interface : host.system->interfaces) {
    for (const std::string& network : interface.addresses) {
      if (network.substr(0, network.find('/')) == host.address) {
        return &interface;
      }
    }
  }
  return nullptr;
}

std::vector<Finding> find_problems(const CheckResult& result) {
  Findings findings;
  for (const auto find : {find_unreached, find_skew, find_few_processors, find_low_memory, find_gpu_faults,
                          find_address_faults, find_interface_faults, find_port_faults, find_low_limits, find_low_space,
                          find_missing_programs, find_version_faults, find_mpirun_faults, find_link_faults}) {
    find(result, findings);
  }
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::pair(!a.is_problem, a.subject) < std::pair(!b.is_problem, b.subject);
  });
  return findings;
}

int exit_code_of(const CheckResult& result, const std::vector<Finding>& findings) {
  if (result.interrupted_by != 0) {
    return 128 + result.interrupted_by;
  }
  return findings.empty() ? 0 : findings.front().exit_code;
}

}  // namespace hvd::launch
