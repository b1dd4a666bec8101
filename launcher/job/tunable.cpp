#include "launcher/job/tunable.h"

#include <array>
#include <cmath>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Kind = Tunable::Kind;

constexpr std::uint64_t kMebi = 1U << 20U;
constexpr double kAny = 1e12;

constexpr Tunable number(const char* flag, const char* key, const char* variable, const char* help,
                         std::uint64_t unit = 1) {
  return {flag, "", key, variable, Kind::kInteger, false, unit, kAny, help};
}
constexpr Tunable real(const char* flag, const char* key, const char* variable, double most, const char* help) {
  return {flag, "", key, variable, Kind::kReal, false, 1, most, help};
}
constexpr Tunable text(const char* flag, const char* key, const char* variable, const char* help) {
  return {flag, "", key, variable, Kind::kText, false, 1, kAny, help};
}
constexpr Tunable on_off(const char* flag, const char* off_flag, const char* key, const char* variable,
                         const char* help) {
  return {flag, off_flag, key, variable, Kind::kSwitch, false, 1, 1, help};
}
constexpr Tunable off_on(const char* flag, const char* off_flag, const char* key, const char* variable,
                         const char* help) {
  return {flag, off_flag, key, variable, Kind::kSwitch, true, 1, 1, help};
}

constexpr std::array kTunables{
    number("--fusion-threshold-mb", "params.fusion_threshold_mb", "HOROVOD_FUSION_THRESHOLD",
           "Most MiB of tensors that are fused into one operation; 0: each alone", kMebi),
    real("--cycle-time-ms", "params.cycle_time_ms", "HOROVOD_CYCLE_TIME", kAny,
         "Most milliseconds that a tensor waits to be fused with others"),
    number("--cache-capacity", "params.cache_capacity", "HOROVOD_CACHE_CAPACITY",
           "Tensors whose negotiation is remembered; 0: none"),
    on_off("--hierarchical-allreduce", "--no-hierarchical-allreduce", "params.hierarchical_allreduce",
           "HOROVOD_HIERARCHICAL_ALLREDUCE",
           "Accepted for horovodrun, without effect: ranks always reduce within their node first"),
    on_off("--hierarchical-allgather", "--no-hierarchical-allgather", "params.hierarchical_allgather",
           "HOROVOD_HIERARCHICAL_ALLGATHER",
           "Accepted for horovodrun, without effect: ranks always gather within their node first"),
    on_off("--torus-allreduce", "--no-torus-allreduce", "params.torus_allreduce", "HOROVOD_TORUS_ALLREDUCE",
           "Accepted for horovodrun, without effect: there is one way between nodes"),

    on_off("--autotune", "--no-autotune", "autotune.enabled", "HOROVOD_AUTOTUNE",
           "Find the best settings while training"),
    text("--autotune-log-file", "autotune.log_file", "HOROVOD_AUTOTUNE_LOG", "Where the tried settings are written"),
    number("--autotune-warmup-samples", "autotune.warmup_samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
           "Samples that are thrown away first"),
    number("--autotune-steps-per-sample", "autotune.steps_per_sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
           "Steps that make a sample"),
    number("--autotune-bayes-opt-max-samples", "autotune.bayes_opt_max_samples",
           "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "Samples after which the best settings stay"),
    real("--autotune-gaussian-process-noise", "autotune.gaussian_process_noise",
         "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", 1, "Share of noise in the samples, 0 to 1"),

    text("--timeline-filename", "timeline.filename", "HOROVOD_TIMELINE", "Where rank 0 writes the timeline"),
    on_off("--timeline-mark-cycles", "--no-timeline-mark-cycles", "timeline.mark_cycles",
           "HOROVOD_TIMELINE_MARK_CYCLES", "Mark the engine's turns in the timeline"),

    off_on("--no-stall-check", "--stall-check", "stall_check.enabled", "HOROVOD_STALL_CHECK_DISABLE",
           "Do not watch for tensors that some ranks never submit"),
    number("--stall-check-warning-time-seconds", "stall_check.warning_time_seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS",
           "Seconds after which a stall is reported"),
    number("--stall-check-shutdown-time-seconds", "stall_check.shutdown_time_seconds",
           "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "Seconds after which a stall ends the job; 0: never"),

    on_off("--mpi-threads-disable", "--no-mpi-threads-disable", "library_options.mpi_threads_disable",
           "HOROVOD_MPI_THREADS_DISABLE", "No MPI calls from several threads"),
    number("--num-nccl-streams", "library_options.num_nccl_streams", "HOROVOD_NUM_NCCL_STREAMS",
           "Accepted for horovodrun, without effect: each process set has one stream"),
    number("--thread-affinity", "library_options.thread_affinity", "HOROVOD_THREAD_AFFINITY",
           "Core of the engine's thread"),
    number("--gloo-timeout-seconds", "library_options.gloo_timeout_seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS",
           "Accepted for horovodrun, without effect: see --stall-check-shutdown-time-seconds"),

    text("--log-level", "logging.level", "HOROVOD_LOG_LEVEL", "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"),
    off_on("--log-without-timestamp", "--log-with-timestamp", "logging.with_timestamp", "HOROVOD_LOG_HIDE_TIME",
           "Accepted for horovodrun, without effect: lines of the runtime's log have no time"),
};

Error bad(const std::string& what, const std::string& expected, std::string_view found) {
  return Error(Code::kInvalid, what + ": expected " + expected + ", found '" + std::string(found) + "'");
}

// Reads a truth value as YAML 1.1 and people write it.
Result<bool> truth(std::string_view value, const std::string& what) {
  const std::string lower = lowered(std::string(value));
  for (const char* yes : {"true", "yes", "on", "1"}) {
    if (lower == yes) {
      return true;
    }
  }
  for (const char* no : {"false", "no", "off", "0"}) {
    if (lower == no) {
      return false;
    }
  }
  return bad(what, "true or false", value);
}

Result<std::string> log_level(std::string_view value, const std::string& what) {
  for (const char* level : {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"}) {
    if (value == level) {
      return std::string(value);
    }
  }
  return bad(what, "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", value);
}

}  // namespace

std::span<const Tunable> tunables() {
  return kTunables;
}

Result<std::string> variable_value(const Tunable& tunable, std::string_view value, const std::string& what) {
  switch (tunable.kind) {
    case Kind::kInteger: {
      const auto count = parse_number<std::uint64_t>(value, 0, std::uint64_t{1} << 40U);
      if (!count) {
        return bad(what, "a whole number of 0 or more", value);
      }
      return std::to_string(*count * tunable.unit);
    }
    case Kind::kReal: {
      if (!parse_number<double>(value, 0, tunable.most)) {
        return bad(what,
                   tunable.most < kAny ? "a number from 0 to " + std::to_string(static_cast<int>(tunable.most))
                                       : "a number of 0 or more",
                   value);
      }
      return std::string(value);
    }
    case Kind::kText:
      return std::string_view(tunable.variable) == "HOROVOD_LOG_LEVEL" ? log_level(value, what)
                                                                       : Result<std::string>(std::string(value));
    case Kind::kSwitch: {
      HVD_TRY_ASSIGN(const bool is_on, truth(value, what));
      return std::string(is_on != tunable.is_inverse ? "1" : "0");
    }
  }
  return bad(what, "a known kind of setting", value);
}

Duration stall_check_time(const Settings& set, const std::vector<std::string>& inherited) {
  constexpr double kUsual = 60;
  constexpr double kMost = 1e9;
  const auto value_of = [&](const std::string& name) -> std::string {
    for (const auto& [variable, value] : set) {
      if (variable == name) {
        return value;
      }
    }
    for (const std::string& entry : inherited) {
      if (entry.starts_with(name + "=")) {
        return entry.substr(name.size() + 1);
      }
    }
    return "";
  };
  const std::string off = value_of("HOROVOD_STALL_CHECK_DISABLE");
  const auto seconds = parse_number<double>(value_of("HOROVOD_STALL_CHECK_TIME_SECONDS"), 0, kMost);
  const auto word = truth(off, "");
  const bool is_off = word.ok() ? word.value() : !off.empty();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(is_off ? 0 : seconds.value_or(kUsual)));
}

}  // namespace hvd::launch
