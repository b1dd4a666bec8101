#include "runtime/abi/config.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/contract.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"
#include "runtime/controller/known_wire.h"

namespace hvd {
namespace {

// A variable that names more ranks or nodes than this is a typing error.
constexpr int kMaxRanks = 1 << 20;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  // Returns the text of a variable. An empty value counts as none, because shells leave such values behind.
  [[nodiscard]] std::optional<std::string> text(const char* name) const {
    const char* value = environment_(name);
    if (value == nullptr || *value == '\0') {
      return std::nullopt;
    }
    return std::string(value);
  }

  // Returns a number within [low, high]; `fallback` if the variable is not set.
  template <typename T>
  Result<T> number(const char* name, T low, T high, std::optional<T> fallback) const {
    const auto value = text(name);
    if (!value) {
      if (fallback) {
        return *fallback;
      }
      return Error(Code::kInvalid, std::string(name) + " is not set, but " + contract::kRank + " or " +
                                       contract::kSize + " is; start ranks with hvdrun");
    }
    const std::optional<T> parsed = parse_number<T>(*value, low, high);
    if (!parsed) {
      return Error(Code::kInvalid, std::string(name) + " is '" + *value + "', expected a number from " + plain(low) +
                                       " to " + plain(high));
    }
    return *parsed;
  }

 private:
  template <typename T>
  static std::string plain(T value) {
    char digits[64];
    const auto [end, failed] = std::to_chars(digits, digits + sizeof digits, value);
    return failed == std::errc() ? std::string(digits, end) : "?";
  }

  const Environment& environment_;
};

// Reads a switch: a number as in Horovod, where 0 is off, or a word.
Result<bool> read_switch(const Reader& env, const char* name) {
  const std::string word = lowered(env.text(name).value_or(""));
  for (const auto& [on, off] : {std::pair("true", "false"), std::pair("yes", "no"), std::pair("on", "off")}) {
    if (word == on || word == off) {
      return word == on;
    }
  }
  HVD_TRY_ASSIGN(const int value, env.number<int>(name, INT_MIN, INT_MAX, 0));
  return value != 0;
}

// Reads an index and the count that it must be below.
Result<void> read_pair(const Reader& env, const char* index_name, const char* count_name, int& index, int& count) {
  HVD_TRY_ASSIGN(count, env.number<int>(count_name, 1, kMaxRanks, std::nullopt));
  HVD_TRY_ASSIGN(index, env.number<int>(index_name, 0, count - 1, std::nullopt));
  return {};
}

// Finds out whether an mpirun or srun that is nearer to this process than any hvdrun has started several ranks, and how
// many. hvdrun removes the variables of outer launchers, and gives its ranks Open MPI's with its own numbers. So within
// a job of one rank, any other number is that of an mpirun which this rank has started.
Result<void> read_started_ranks(const Reader& env, MpiSettings& mpi) {
  const auto hvdruns = env.text(contract::kSize);
  const bool is_of_hvdrun = hvdruns || env.text(contract::kRank);
  if (is_of_hvdrun && hvdruns.value_or("") != "1") {
    return {};
  }
  // Slurm's variable is also set where srun does not launch MPI, and where it has only started mpirun's daemons.
  const bool is_of_pmix = !is_of_hvdrun && env.text(contract::kPmixRank) && !env.text(contract::kOpenMpiSize);
  for (const char* name : {contract::kOpenMpiSize, contract::kPmiSize, contract::kSlurmStepSize}) {
    if (name != contract::kSlurmStepSize || is_of_pmix) {
      HVD_TRY_ASSIGN(const int told, env.number<int>(name, 1, kMaxRanks, 0));
      if (told > 1) {
        mpi.has_started_ranks = true;
        mpi.told_size = told;
        mpi.told_by = name;
        return {};
      }
    }
  }
  if (is_of_pmix && !env.text(contract::kPmiSize) && !env.text(contract::kSlurmStepSize)) {
    mpi.has_started_ranks = true;  // MPI will give their number
    mpi.told_by = contract::kPmixRank;
  }
  return {};
}

// Launchers of Horovod's Gloo, also other people's, set this for the ranks; no setting of ours.
constexpr const char* kGlooSize = "HOROVOD_SIZE";
constexpr const char* kGlooAddress = "HOROVOD_GLOO_RENDEZVOUS_ADDR";

// The number that a variable of a launcher tells; 1 where it tells none.
int told_count(const Reader& env, const char* name) {
  const auto told = env.number<int>(name, 1, kMaxRanks, 1);
  return told.ok() ? told.value() : 1;
}

// Says whether a launcher that libhvd knows is nearer to this rank than srun, or than one of Horovod's.
bool has_known_launcher(const Reader& env) {
  const auto names = {contract::kAgentSocket, contract::kRank,    contract::kSize,
                      contract::kOpenMpiSize, contract::kPmiSize, contract::kPmixRank};
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return env.text(name).has_value(); });
}

// Says whether a variable of any launcher that starts ranks is there.
bool is_started(const Reader& env) {
  return has_known_launcher(env) || env.text(contract::kTorchrunId).has_value();
}

// Returns a warning for a rank that was started as one of several, in a way that tells it nothing of the others. The
// user may want that: many jobs of one rank each.
std::string words_when_alone(const Reader& env) {
  if (env.text(contract::kAgentSocket)) {
    return "";  // hvdrun has started it; in an elastic job it may be the only one that is left
  }
  if (const int ranks = env.text(contract::kTorchrunId) ? told_count(env, contract::kWorldSize) : 1; ranks > 1) {
    return "torchrun has started " + std::to_string(ranks) + " ranks (" + contract::kWorldSize +
           "), and this one runs alone; start them with hvdrun";
  }
  if (has_known_launcher(env)) {
    return "";
  }
  if (const int tasks = told_count(env, contract::kSlurmStepSize); tasks > 1) {
    return "srun has started " + std::to_string(tasks) + " tasks (" + contract::kSlurmStepSize +
           "), and this rank runs alone; start them with srun --mpi=pmix, or with hvdrun";
  }
  if (const int ranks = told_count(env, kGlooSize); ranks > 1) {
    return "a launcher of Horovod's has started " + std::to_string(ranks) + " ranks (" + kGlooSize +
           "), and this one runs alone; start them with hvdrun";
  }
  return "";
}

// Refuses ranks that a launcher of Horovod's tells where to meet: each alone would train a model of its own. Unlike the
// size, nobody sets that place for jobs of one rank.
Result<void> refuse_gloo(const Reader& env) {
  const auto address = env.text(kGlooAddress);
  if (has_known_launcher(env) || told_count(env, kGlooSize) == 1 || !address) {
    return {};
  }
  return Error(Code::kInvalid, "a launcher of Horovod's has started this rank, to meet the others at " + *address +
                                   " (" + kGlooAddress + "), which libhvd cannot; start the ranks with hvdrun");
}

Result<void> read_mpi(const Reader& env, Config& config) {
  HVD_TRY(read_started_ranks(env, config.mpi));
  config.mpi.has_launcher = env.text(contract::kPmixRank) || env.text(contract::kPmiSize);
  // PMI without PMIx is how MPICH's relatives start ranks. Open MPI's launchers use PMIx, and so do launchers that can
  // start both.
  config.mpi.prefers_mpich =
      config.mpi.told_by == contract::kPmiSize && (env.text(contract::kOpenMpiSize) || !env.text(contract::kPmixRank));
  config.alone = words_when_alone(env);
  HVD_TRY(refuse_gloo(env));
  config.has_no_launcher = config.alone.empty() && !is_started(env);
  config.mpi.library = env.text(contract::kMpiLibrary).value_or("");
  HVD_TRY_ASSIGN(const bool is_off, read_switch(env, contract::kMpiThreadsOff));
  config.mpi.wants_all_threads = !is_off;
  const std::string operations = lowered(env.text(contract::kCpuOperations).value_or(""));
  // Scripts for Intel's machines ask for the libraries that Horovod has there: ccl, and mlsl before it.
  if (operations != "" && operations != "mpi" && operations != "gloo" && operations != "ccl" && operations != "mlsl") {
    return Error(Code::kInvalid, std::string(contract::kCpuOperations) + " is '" + operations +
                                     "', expected mpi (data goes over MPI) or gloo (over libhvd's own links)");
  }
  config.mpi.moves_data = operations == "mpi";
  return {};
}

// Horovod fixes this when it is built. Here it may differ from job to job, but must be the same on all ranks.
Result<void> read_devices(const Reader& env, Config& config) {
  DeviceOptions& devices = config.engine.devices;
  devices.nccl_library = env.text(contract::kNcclLibrary).value_or("");
  HVD_TRY_ASSIGN(devices.completes_early, read_switch(env, contract::kEarlyCompletion));
  const auto read_kind = [&](const char* name, bool otherwise) -> Result<bool> {
    const std::string value = lowered(env.text(name).value_or(""));
    const bool is_other_library = value == "ddl" || value == "ccl";  // Horovod has these between GPUs too
    if (value != "" && value != "nccl" && value != "mpi" && value != "none" && !is_other_library) {
      return Error(Code::kInvalid, std::string(name) + " is '" + value +
                                       "', expected NCCL, or MPI or none (through the host's memory)");
    }
    return value == "" ? otherwise : value == "nccl" || is_other_library;
  };
  HVD_TRY_ASSIGN(const bool all, read_kind(contract::kGpuOperations, true));
  const std::pair<OpKind, const char*> kinds[] = {{OpKind::kAllreduce, contract::kGpuAllreduce},
                                                  {OpKind::kAllgather, contract::kGpuAllgather},
                                                  {OpKind::kBroadcast, contract::kGpuBroadcast},
                                                  {OpKind::kAlltoall, contract::kGpuAlltoall},
                                                  {OpKind::kReducescatter, contract::kGpuReducescatter}};
  devices.uses_nccl.fill(false);
  for (const auto& [kind, name] : kinds) {
    HVD_TRY_ASSIGN(devices.uses_nccl[static_cast<std::size_t>(kind)], read_kind(name, all));
  }
  return {};
}

// Asked for, it holds for all that leaves a host, or the job does not start.
Result<void> read_link_security(const Reader& env, Config& config) {
  const std::string value = lowered(env.text(contract::kLinkSecurity).value_or("plain"));
  if (value != "plain" && value != "encrypt") {
    return Error(Code::kInvalid, std::string(contract::kLinkSecurity) + " is '" + value +
                                     "', expected encrypt (what goes to other hosts is encrypted) or plain");
  }
  const bool is_sealed = value == "encrypt";
  if (is_sealed && config.mpi.moves_data) {
    return Error(Code::kInvalid, std::string(contract::kLinkSecurity) + " is 'encrypt', but " +
                                     contract::kCpuOperations +
                                     "=mpi sends data over MPI, which encrypts nothing; use one of the two");
  }
  config.engine.mesh.is_sealed = is_sealed;
  config.engine.devices.stays_on_host = is_sealed;
  return {};
}

Result<void> read_identity(const Reader& env, Config& config) {
  config.engine.mesh.node_address = env.text(contract::kNodeAddress).value_or("");
  config.engine.mesh.congestion = env.text(contract::kTcpCongestion).value_or("");
  if (config.mpi.has_started_ranks || (!env.text(contract::kRank) && !env.text(contract::kSize))) {
    return {};
  }
  RankMap& map = config.map;
  HVD_TRY(read_pair(env, contract::kRank, contract::kSize, map.rank, map.size));
  HVD_TRY(read_pair(env, contract::kLocalRank, contract::kLocalSize, map.local_rank, map.local_size));
  HVD_TRY(read_pair(env, contract::kCrossRank, contract::kCrossSize, map.cross_rank, map.cross_size));
  HVD_TRY(read_pair(env, contract::kNodeIndex, contract::kNodeCount, map.node_index, map.node_count));
  config.agent_socket = env.text(contract::kAgentSocket).value_or("");
  config.agent_token = env.text(contract::kAgentToken).value_or("");
  if (map.size > 1 && config.agent_socket.empty()) {
    return Error(Code::kInvalid, std::string(contract::kAgentSocket) + " is not set, but " + contract::kSize + " is " +
                                     std::to_string(map.size) + "; start ranks with hvdrun");
  }
  return {};
}

Result<LogLevel> read_log_level(const Reader& env) {
  const auto value = env.text(contract::kLogLevel);
  if (!value) {
    return LogLevel::kWarning;
  }
  const std::string level = lowered(*value);
  if (level == "trace" || level == "debug") {
    return LogLevel::kDebug;
  }
  if (level == "info") {
    return LogLevel::kInfo;
  }
  // Scripts say "warn" and "off" too, which Horovod takes without a word.
  if (level == "warning" || level == "warn") {
    return LogLevel::kWarning;
  }
  if (level == "error" || level == "fatal" || level == "off") {
    return LogLevel::kError;
  }
  return Error(Code::kInvalid, std::string(contract::kLogLevel) + " is '" + *value +
                                   "', expected trace, debug, info, warning, error or fatal");
}

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

Result<void> read_stall(const Reader& env, Config& config) {
  constexpr double kMaxSeconds = 1e8;
  HVD_TRY_ASSIGN(const bool is_off, read_switch(env, contract::kStallOff));
  HVD_TRY_ASSIGN(const double warn, env.number<double>(contract::kStallWarn, 0.0, kMaxSeconds, 60.0));
  HVD_TRY_ASSIGN(const double end, env.number<double>(contract::kStallEnd, 0.0, kMaxSeconds, 0.0));
  // A job that is to end earlier than a stall would be reported ends then, and its error reports the stall.
  config.engine.stall.warn_after = is_off ? Duration::zero() : duration_of(end > 0 ? std::min(warn, end) : warn);
  config.engine.stall.end_after = is_off ? Duration::zero() : duration_of(end);
  return {};
}

Result<void> read_timeline(const Reader& env, Config& config) {
  TimelineOptions& timeline = config.engine.timeline;
  const std::string path = env.text(contract::kTimeline).value_or("");
  timeline.path = path == "DYNAMIC" ? "" : path;
  timeline.keeps_earlier = parse_number<int>(env.text(contract::kRestartCount).value_or("0")).value_or(0) > 0;
  HVD_TRY_ASSIGN(timeline.marks_cycles, read_switch(env, contract::kTimelineCycles));
  return {};
}

// Values that the user has set are not tuned.
Result<void> read_autotune(const Reader& env, Config& config) {
  constexpr int kMost = 1'000'000;
  AutotuneOptions& tune = config.engine.autotune;
  HVD_TRY_ASSIGN(tune.is_on, read_switch(env, contract::kAutotune));
  HVD_TRY_ASSIGN(tune.warmup_samples, env.number<int>(contract::kAutotuneWarmup, 0, kMost, tune.warmup_samples));
  HVD_TRY_ASSIGN(tune.steps_per_sample, env.number<int>(contract::kAutotuneSteps, 1, kMost, tune.steps_per_sample));
  // Each sample costs a matrix over all earlier ones.
  constexpr int kMostSamples = 1000;
  HVD_TRY_ASSIGN(tune.max_samples, env.number<int>(contract::kAutotuneSamples, 1, kMostSamples, tune.max_samples));
  HVD_TRY_ASSIGN(tune.noise, env.number<double>(contract::kAutotuneNoise, 0.0, 1.0, tune.noise));
  tune.log_path = env.text(contract::kAutotuneLog).value_or("");
  tune.keeps_fusion = env.text(contract::kFusionThreshold).has_value();
  tune.keeps_window = env.text(contract::kCycleTime).has_value();
  return {};
}

// Reads one core for each rank of a node, or one for all of them. choose_by_place() takes the rank's.
Result<void> read_affinity(const Reader& env, Config& config) {
  const auto list = env.text(contract::kThreadAffinity);
  if (!list) {
    return {};
  }
  for (std::size_t begin = 0; begin <= list->size();) {
    const std::size_t end = std::min(list->find(',', begin), list->size());
    const auto core = parse_number<int>(std::string_view(*list).substr(begin, end - begin), 0, CPU_SETSIZE - 1);
    if (!core) {
      return Error(Code::kInvalid,
                   std::string(contract::kThreadAffinity) + " is '" + *list + "', expected numbers of cores, as 0,1,2");
    }
    config.thread_cores.push_back(*core);
    begin = end + 1;
  }
  return {};
}

Result<void> read_tuning(const Reader& env, Config& config) {
  constexpr std::uint64_t kMaxFusionBytes = std::uint64_t{1} << 40U;
  constexpr double kMaxCycleMs = 60'000.0;
  constexpr double kMaxStartSeconds = 86'400.0;
  HVD_TRY_ASSIGN(
      const std::uint64_t fusion_bytes,
      env.number<std::uint64_t>(contract::kFusionThreshold, 0, kMaxFusionBytes, config.engine.fusion_threshold_bytes));
  config.engine.fusion_threshold_bytes = static_cast<std::size_t>(fusion_bytes);
  HVD_TRY_ASSIGN(const int known, env.number<int>(contract::kCacheCapacity, 0, INT_MAX, 1024));
  config.engine.cache_capacity = static_cast<std::size_t>(std::min(known, control_wire::kMaxPositions));
  HVD_TRY_ASSIGN(const double cycle_ms, env.number<double>(contract::kCycleTime, 0.0, kMaxCycleMs, 1.0));
  config.engine.cycle_time = duration_of(cycle_ms / 1000.0);
  HVD_TRY_ASSIGN(const bool keeps_groups_apart, read_switch(env, contract::kNoGroupFusion));
  config.engine.fuses_groups = !keeps_groups_apart;
  HVD_TRY_ASSIGN(const double start_seconds,
                 env.number<double>(contract::kStartTimeout, 0.001, kMaxStartSeconds, 60.0));
  config.start_timeout = duration_of(start_seconds);
  config.engine.set_timeout = config.start_timeout;
  HVD_TRY_ASSIGN(config.log_level, read_log_level(env));
  config.tuning = env.text(contract::kTuning).value_or("");
  return {};
}

}  // namespace

Result<Config> config_from(const Environment& environment) {
  const Reader env(environment);
  Config config;
  HVD_TRY(read_mpi(env, config));
  HVD_TRY(read_devices(env, config));
  HVD_TRY(read_link_security(env, config));
  HVD_TRY(read_identity(env, config));
  HVD_TRY(read_tuning(env, config));
  HVD_TRY(read_autotune(env, config));
  HVD_TRY(read_affinity(env, config));
  HVD_TRY(read_stall(env, config));
  HVD_TRY(read_timeline(env, config));
  return config;
}

namespace {

// A process that is alone and starts MPI itself, by mpi4py or by Lightning where that is installed, gets PMIx's
// variables from it as ranks of a launcher do. What a launcher says is there when the process begins.
bool has_pmix_launcher() {
  const std::string begun = '\0' + text_of_file("/proc/self/environ");
  const auto had = [&begun](const char* name) {
    return begun.find('\0' + std::string(name) + "=") != std::string::npos;
  };
  return had(contract::kPmixRank) || !had("PATH");  // a program that shows a title has written over it
}

}  // namespace

Result<Config> config_from_process() {
  const bool is_of_pmix = has_pmix_launcher();
  return config_from([is_of_pmix](const char* name) -> const char* {
    return !is_of_pmix && std::strcmp(name, contract::kPmixRank) == 0 ? nullptr : std::getenv(name);
  });
}

Result<void> choose_by_place(Config& config) {
  const RankMap& place = config.place ? *config.place : config.map;
  const std::vector<int>& cores = config.thread_cores;
  if (cores.size() > 1 && cores.size() < static_cast<std::size_t>(place.local_size)) {
    return Error(Code::kInvalid, std::string(contract::kThreadAffinity) + " names " + std::to_string(cores.size()) +
                                     " cores for the " + std::to_string(place.local_size) +
                                     " ranks of a node; give one for each, or one for all");
  }
  if (!cores.empty()) {
    config.engine.thread_core = cores.size() == 1 ? cores[0] : cores[static_cast<std::size_t>(place.local_rank)];
  }
  config.engine.devices.usual_device = config.slot.value_or(place.local_rank);
  return {};
}

}  // namespace hvd
