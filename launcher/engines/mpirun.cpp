#include "launcher/engines/mpirun.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "launcher/placement/rank_env.h"
#include "launcher/process/output_of.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

constexpr const char* kMpirun = "mpirun";
constexpr auto kVersionTime = std::chrono::seconds(20);
constexpr int kOldestMajor = 4;
constexpr const char* kInstall = "install Open MPI 4 or later (Debian: openmpi-bin)";

// These options place ranks or bind them, by today's names and by older ones that Open MPI still takes. From version 5
// on it accepts only one of a kind; version 4 took the last.
constexpr std::array<std::string_view, 14> kMapping = {
    "map-by",     "byslot",  "bynode",   "bycore", "N",       "ppr",           "npernode",
    "npersocket", "pernode", "rankfile", "rf",     "cpu-set", "cpus-per-proc", "cpus-per-rank"};
constexpr std::array<std::string_view, 8> kBinding = {"bind-to", "bind-to-core", "bind-to-socket", "rankfile",
                                                      "rf",      "cpu-set",      "cpus-per-proc",  "cpus-per-rank"};

// Says whether an option among `words` has one of `names`, after one dash or two, with its value or before it.
template <std::size_t N>
bool has_option(const std::vector<std::string>& words, const std::array<std::string_view, N>& names) {
  return std::any_of(words.begin(), words.end(), [&names](std::string_view word) {
    const std::string_view name = word.substr(word.starts_with("--") ? 2 : 1);
    return word.starts_with('-') &&
           std::find(names.begin(), names.end(), name.substr(0, name.find('='))) != names.end();
  });
}

// --map-by slot:PE=2 binds each rank to its processors, and allows no other binding.
bool maps_to_processors(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word.find(":PE=") != std::string::npos || word.find(":pe=") != std::string::npos;
  });
}

// Returns the words that place and bind the ranks, where the user's own words do not.
std::vector<std::string> layout_words(const MpirunOptions& options) {
  std::vector<std::string> words;
  if (!has_option(options.args, kMapping) && !has_option(options.binding, kMapping)) {
    words.insert(words.end(), {"--map-by", "slot"});
  }
  if (options.binding.empty() && !has_option(options.args, kBinding) && !maps_to_processors(options.args)) {
    // Without this, Open MPI binds two ranks to a core each, with all threads and data loaders. --bind is ours.
    words.insert(words.end(), {"--bind-to", "none"});
  }
  words.insert(words.end(), options.binding.begin(), options.binding.end());
  return words;
}

// The hosts have exactly the slots that ranks need: then filling slot by slot is the placement, and all ranks fit.
std::string slots_of(const Placement& placement, const char* before_slots, const char* between) {
  std::string hosts;
  for (const NodePlan& node : placement.nodes) {
    hosts += (hosts.empty() ? "" : between) + node.host.name + before_slots + std::to_string(node.local_size());
  }
  return hosts;
}

constexpr const char* kUsersWords = "is it in --mpi-args or --binding-args?";
constexpr const char* kSamePath =
    "hvdrun-agent must be at the same path on every host: install hvdrun there, or share the folder";

bool has_domain(const NodePlan& node) {
  return node.host.name.find_first_not_of("0123456789.") != std::string::npos &&
         node.host.name.find('.') != std::string::npos;
}

// The user's own settings of Open MPI and of PMIx have names like those that a launcher around us sets. A launcher
// would also set a rank; without that, the settings are the user's.
bool is_users_setting(std::string_view entry, const std::vector<std::string>& environment) {
  static constexpr std::array<std::string_view, 3> kPmix = {"PMIX_MCA_", "PMIX_INSTALL_PREFIX=", "PMIX_PREFIX="};
  if (entry.starts_with("OMPI_MCA_")) {
    return value_in(environment, "OMPI_COMM_WORLD_RANK").empty();
  }
  return value_in(environment, "PMIX_RANK").empty() &&
         std::any_of(kPmix.begin(), kPmix.end(), [entry](std::string_view name) { return entry.starts_with(name); });
}

}  // namespace

std::vector<std::string> mpirun_words(const Placement& placement, const MpirunOptions& options,
                                      const CallPlace& place) {
  std::vector<std::string> words = {kMpirun};
  if (options.is_root) {
    words.emplace_back("--allow-run-as-root");
  }
  const std::string hosts = slots_of(placement, ":", ",");
  const bool has_file = hosts.size() > kLongestHosts;
  words.insert(words.end(), {"-np", std::to_string(placement.size), has_file ? "--hostfile" : "-H",
                             has_file ? std::string(kHostsFile) : hosts});
  const std::vector<std::string> layout = layout_words(options);
  words.insert(words.end(), layout.begin(), layout.end());
  // Otherwise Open MPI would give ssh only the part of a name before its first dot, and take two such hosts for one.
  // Version 4 knows the first parameter and version 5 the second; each ignores the other's.
  if (std::any_of(placement.nodes.begin(), placement.nodes.end(), [](const NodePlan& n) { return has_domain(n); })) {
    words.insert(words.end(), {"--mca", "orte_keep_fqdn_hostnames", "1", "--mca", "prte_keep_fqdn_hostnames", "1"});
  }
  // Only the name is given: the value is never on a command line, nor on those by which mpirun reaches other hosts.
  // mpirun sends the value to these in clear text, as it does standard input and all that PMIx carries. CallKey is made
  // to be safe even so.
  words.insert(words.end(), {"-x", kCallSecretVariable});
  words.insert(words.end(), options.args.begin(), options.args.end());
  const std::vector<std::string> program = call_words(options.agent_path, kMpirun, place);
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

EngineCommand mpirun_command(const Placement& placement, const MpirunOptions& options, const CallPlace& place,
                             const CallKey& key) {
  EngineCommand command;
  command.name = kMpirun;
  command.open_files = options.open_files;
  command.argv = mpirun_words(placement, options, place);
  if (std::find(command.argv.begin(), command.argv.end(), kHostsFile) != command.argv.end()) {
    command.hosts = slots_of(placement, " slots=", "\n") + "\n";
  }
  for (const std::string& entry : options.environment) {
    if (is_users_setting(entry, options.environment) || !is_outer_launcher_variable(entry.substr(0, entry.find('=')))) {
      command.environment.push_back(entry);
    }
  }
  command.environment.push_back(std::string(kCallSecretVariable) + "=" + call_key_text(key));
  command.failure_in = mpirun_failure;
  return command;
}

EngineFailure mpirun_failure(std::string_view output) {
  struct Sign {
    std::string_view words;
    Code code;
    const char* advice;
  };
  // These are signs of version 4 (ORTE) and of 5 (PRRTE), which break their lines at different words.
  static constexpr std::array<Sign, 16> kSigns = {{
      {"not enough slots", Code::kInvalid, "-H and --hostfile say what slots there are"},
      {"unknown option", Code::kInvalid, kUsersWords},
      {"unrecognized option", Code::kInvalid, kUsersWords},
      {"listed more than once", Code::kInvalid, kUsersWords},
      {"too many directives", Code::kInvalid, kUsersWords},
      {"mapping directive cannot be combined", Code::kInvalid, kUsersWords},
      {"policy is not recognized", Code::kInvalid, kUsersWords},
      {"directive is not recognized", Code::kInvalid, kUsersWords},
      {"could not access", Code::kSystem, kSamePath},
      {"access an executable", Code::kSystem, kSamePath},
      {"Host key verification failed", Code::kUnreachable, "mpirun uses ssh: add the host's key to known_hosts"},
      {"Permission denied (", Code::kUnreachable, "mpirun uses ssh, which must ask for no password"},
      {"Could not resolve hostname", Code::kUnreachable, ""},
      {"cannot call hvdrun back", Code::kUnreachable, ""},
      {"unable to reliably start one or more daemons", Code::kUnreachable,
       "Open MPI must be installed on every host, and found there by: ssh HOST orted --version"},
      {"daemon failed to report back", Code::kUnreachable,
       "Open MPI must be installed on every host, and found there by: ssh HOST prted --version"},
  }};
  const auto found = std::find_if(kSigns.begin(), kSigns.end(), [output](const Sign& sign) {
    return output.find(sign.words) != std::string_view::npos;
  });
  return found == kSigns.end() ? EngineFailure{} : EngineFailure{found->code, found->advice};
}

Result<std::string> open_mpi_in(std::string_view version_output) {
  constexpr std::string_view kMark = "mpirun (Open MPI) ";
  const auto mark = version_output.find(kMark);
  const auto line_end = std::min(version_output.find('\n'), version_output.size());
  if (mark == std::string_view::npos) {
    return Error(Code::kNotFound, "the mpirun in PATH is not Open MPI's; it says '" +
                                      std::string(version_output.substr(0, line_end)) + "'; " + kInstall);
  }
  const std::string_view rest = version_output.substr(mark + kMark.size());
  const std::string version(rest.substr(0, rest.find_first_of(" \r\n")));
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  if (major < kOldestMajor) {
    return Error(Code::kNotFound, "the mpirun in PATH is of Open MPI " + version + "; " + kInstall);
  }
  return "Open MPI " + version;
}

Result<std::string> find_open_mpi(const std::vector<std::string>& environment) {
  const auto output = output_of({kMpirun, "--version"}, environment, Deadline::after(kVersionTime));
  if (!output.ok()) {
    return Error(Code::kNotFound, output.error().message() + "; " + kInstall);
  }
  return open_mpi_in(output.value());
}

}  // namespace hvd::launch
