#include "launcher/check/host_findings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "launcher/check/shared_findings.h"
#include "launcher/state/exit_codes.h"

namespace hvd::launch {
namespace {

bool wants_locked_memory(const CheckedHost& host) {
  const auto& interfaces = host.system->interfaces;
  return (host.ready && !host.ready->gpus.empty()) ||
         std::any_of(interfaces.begin(), interfaces.end(),
                     [](const InterfaceSurvey& interface) { return interface.name.compare(0, 2, "ib") == 0; });
}

// Returns a version for comparison; "none" counts as one, so that hosts without the package differ from hosts with it.
Value version_of(std::string SoftwareSurvey::* field) {
  return [field](const CheckedHost& host) -> std::optional<std::string> {
    if (!host.software || host.software->python.empty()) {
      return std::nullopt;
    }
    const std::string& version = (*host.software).*field;
    return version.empty() ? "none" : version;
  };
}

}  // namespace

void find_low_limits(const CheckResult& result, Findings& findings) {
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.system && h.system->open_files < kLeastOpenFiles; },
      [](const CheckedHost& first, const std::string& names) {
        const auto& system = *first.system;
        const bool can_raise = system.open_files_most >= kLeastOpenFiles;
        return warning(Subject::kLimits,
                       names + ": a process may open " + std::to_string(system.open_files) + " files at most",
                       can_raise ? "data loaders need more; put 'ulimit -n " + std::to_string(system.open_files_most) +
                                       "' where the login shell reads it"
                                 : "data loaders need more; raise nofile in /etc/security/limits.conf there");
      });
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.system && h.system->processes < kLeastProcesses; },
      [](const CheckedHost&, const std::string& names) {
        return warning(Subject::kLimits,
                       names + ": the user may have fewer than " + std::to_string(kLeastProcesses) + " processes",
                       "threads count, too; raise nproc in /etc/security/limits.conf, or pids.max of the container");
      });
  warn_where(
      result, findings,
      [](const CheckedHost& h) { return h.system && h.system->locked_memory < kLeastLocked && wants_locked_memory(h); },
      [](const CheckedHost&, const std::string& names) {
        return warning(Subject::kLimits, names + ": little memory may be locked, which GPUs and InfiniBand need",
                       "set memlock to unlimited in /etc/security/limits.conf there");
      });
}

void find_low_space(const CheckResult& result, Findings& findings) {
  warn_where(
      result, findings,
      [](const CheckedHost& h) { return h.system && std::min(h.system->shared, h.system->shared_free) < kLeastShared; },
      [](const CheckedHost& first, const std::string& names) {
        const auto& system = *first.system;
        return warning(
            Subject::kSpace,
            names + ": /dev/shm has " + megabytes(system.shared_free) + " free of " + megabytes(system.shared),
            "data loaders and NCCL keep data there; mount it larger (docker run --shm-size 8g), or remove "
            "what was left in it");
      });
  for (const auto folder : {&SoftwareSurvey::cache, &SoftwareSurvey::temporary}) {
    for (std::size_t host = 0; host < result.hosts.size(); ++host) {
      const CheckedHost& checked = result.hosts[host];
      const bool is_known = checked.software && checked.software->error.empty();
      const FolderSurvey survey = is_known ? (*checked.software).*folder : FolderSurvey();
      if (is_known && (!survey.error.empty() || survey.free < kLeastSpace)) {
        findings.push_back(
            warning(Subject::kSpace, {static_cast<int>(host)},
                    checked.name() + ": " +
                        (survey.error.empty() ? "only " + megabytes(survey.free) + " are free at " + survey.path
                                              : survey.error),
                    folder == &SoftwareSurvey::cache ? "clear it, or set XDG_CACHE_HOME there to a larger place"
                                                     : "clear it, or set TMPDIR there to a larger place"));
      }
    }
  }
}

void find_missing_programs(const CheckResult& result, Findings& findings) {
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.software && !h.software->directory.error.empty(); },
      [](const CheckedHost& first, const std::string& names) {
        return problem(
            Subject::kProgram, exit_code::kNoProgram,
            names + ": the working directory is not there: " + first.software->directory.error,
            "a job starts in the directory that hvdrun is started in; go to one that all hosts have, or bring "
            "yours with --sync");
      });
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.software && !h.software->program_error.empty(); },
      [&](const CheckedHost& first, const std::string& names) {
        Finding finding = warning(Subject::kProgram, names + ": " + first.software->program_error,
                                  "install it there, or pass on a PATH that has it: -x PATH=/opt/env/bin:$PATH");
        finding.is_problem = result.names_program;
        finding.exit_code = result.names_program ? exit_code::kNoProgram : 0;
        return finding;
      });
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.software && !h.software->script_error.empty(); },
      [](const CheckedHost& first, const std::string& names) {
        return problem(Subject::kScript, exit_code::kNoProgram, names + ": " + first.software->script_error,
                       "put it at the same place on all hosts, or bring your folder with --sync");
      });
  warn_where(
      result, findings,
      [&](const CheckedHost& h) { return !result.not_in_folder.empty() && h.ready && !h.opened.is_local; },
      [&](const CheckedHost&, const std::string& names) {
        return problem(Subject::kScript, exit_code::kNoProgram,
                       names + ": --sync would not bring '" + result.not_in_folder + "'",
                       "see that it is in the folder, and that neither git nor .hvdignore leaves it out");
      });
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.software && !h.software->python_error.empty(); },
      [](const CheckedHost& first, const std::string& names) {
        const auto& software = *first.software;
        return warning(Subject::kProgram, names + ": " + software.program + " does not run: " + software.python_error,
                       "try it there: " + software.program + " -c 'import sys; print(sys.version)'");
      });
}

// Names the packages whose versions differ; those of PyTorch and ours have findings of their own.
void warn_of_packages(const CheckResult& result, Findings& findings, const std::string& advice) {
  const std::vector<int> hosts =
      hosts_where(result, [](const CheckedHost& h) { return h.software && !h.software->packages.empty(); });
  std::map<std::string, std::map<std::string, std::vector<int>>> hosts_of;  // by name, then by version
  for (const int host : hosts) {
    for (const auto& [name, version] : result.hosts[static_cast<std::size_t>(host)].software->packages) {
      hosts_of[name][version].push_back(host);
    }
  }
  constexpr std::size_t kMostNamed = 6;
  std::size_t count = 0;
  std::string what = "Python packages are not the same on all hosts: ";
  for (const auto& [name, versions] : hosts_of) {
    std::size_t having = 0;
    for (const auto& [version, there] : versions) {
      having += there.size();
    }
    if (name == "torch" || name == "horovod" || name == "hvdrun" || (versions.size() == 1 && having == hosts.size()) ||
        ++count > kMostNamed) {
      continue;
    }
    what += (count == 1 ? "" : "; ") + name;
    bool is_first = true;
    for (const auto& [version, there] : versions) {
      what += (std::exchange(is_first, false) ? " " : ", ") + version + " on " + host_names(result, there);
    }
    what += having < hosts.size() ? ", not on all" : "";
  }
  if (count > kMostNamed) {
    what += "; and " + std::to_string(count - kMostNamed) + " more, which --json lists";
  }
  if (count > 0) {
    findings.push_back(warning(Subject::kProgram, hosts, std::move(what), advice));
  }
}

void find_version_faults(const CheckResult& result, Findings& findings) {
  const std::string advice = "use one environment on all hosts: a shared file system, an image, or the same pins";
  warn_of_difference(
      result, findings, Subject::kSystem, "the processor type is",
      [](const CheckedHost& h) { return h.system ? std::optional(h.system->machine) : std::nullopt; },
      "programs for one do not run on the other");
  warn_of_difference(result, findings, Subject::kProgram, "Python is", version_of(&SoftwareSurvey::python), advice);
  warn_of_difference(result, findings, Subject::kProgram, "PyTorch is", version_of(&SoftwareSurvey::torch), advice);
  warn_of_difference(result, findings, Subject::kProgram, "the package horovod is",
                     version_of(&SoftwareSurvey::horovod), advice);
  warn_of_packages(result, findings, advice);
  warn_of_difference(
      result, findings, Subject::kAgent, "the agent is",
      [](const CheckedHost& h) { return h.ready ? std::optional(h.ready->version) : std::nullopt; },
      "install one version of hvdrun");
}

void find_mpirun_faults(const CheckResult& result, Findings& findings) {
  if (!result.wants_mpirun) {
    return;
  }
  warn_where(
      result, findings, [](const CheckedHost& h) { return h.software && !h.software->mpirun_error.empty(); },
      [](const CheckedHost& first, const std::string& names) {
        return problem(Subject::kMpirun, exit_code::kStartFailed, names + ": " + first.software->mpirun_error,
                       "install Open MPI there (apt-get install openmpi-bin), or leave out --launcher mpi");
      });
  // The call's secret reaches mpirun's daemons only over mpirun's own connection, which is not encrypted.
  warn_where(
      result, findings,
      [](const CheckedHost& h) { return h.software && !h.software->mpirun.empty() && !h.opened.is_local; },
      [](const CheckedHost&, const std::string& names) {
        return warning(Subject::kMpirun,
                       "mpirun sends the secret of hvdrun's call to " + names +
                           " in clear text; sessions are encrypted all the same, but who reads it on the network could "
                           "call in a rank's place when the job starts",
                       "leave out --launcher mpi where others can read the network between the hosts");
      });
  warn_of_difference(
      result, findings, Subject::kMpirun, "mpirun is",
      [](const CheckedHost& h) {
        return h.software && !h.software->mpirun.empty() ? std::optional(h.software->mpirun) : std::nullopt;
      },
      "install one version of Open MPI everywhere");
}

}  // namespace hvd::launch
