// Findings say what is wrong, or may be wrong, with the hosts of a check, each with what to try. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/check/check_result.h"

namespace hvd::launch {

// Subject is the column or line of the table that a finding belongs to.
enum class Subject : std::uint8_t {
  kReach,
  kAgent,
  kAnswer,
  kClock,
  kProcessors,
  kMemory,
  kGpus,
  kAddress,
  kMtu,
  kInterfaceSpeed,
  kPorts,
  kSystem,
  kLimits,
  kSpace,
  kProgram,
  kScript,
  kMpirun,
  kLink,
  kSpeed
};

// Returns "reach", "link" ... for programs.
const char* name_of(Subject subject);

struct Finding {
  Subject subject = Subject::kReach;
  bool is_problem = false;  // a job could not start; false: a warning
  int exit_code = 0;        // with which such a job would have ended; 0: a warning
  std::vector<int> hosts;   // indexes
  std::string what;
  std::string advice;  // what to try; empty: `what` says it, or nothing can be done
};

// A finding is reported beyond these limits.
inline constexpr Duration kMostSkew = std::chrono::seconds(2);
inline constexpr std::uint64_t kLeastOpenFiles = 1024;
inline constexpr std::uint64_t kLeastProcesses = 256;
inline constexpr std::uint64_t kLeastShared = 64U << 20U;
inline constexpr std::uint64_t kLeastSpace = 64U << 20U;
inline constexpr std::uint64_t kLeastMemory = 256U << 20U;
inline constexpr std::uint64_t kLeastLocked = 64U << 20U;  // applies where there are GPUs or InfiniBand
inline constexpr std::int32_t kLeastPorts = 1000;
// A link is called slow beyond these multiples of the median over all links.
inline constexpr double kSlowRoundTrip = 5;
inline constexpr double kSlowBandwidth = 0.25;

// Returns problems first, each group in the order of Subject.
std::vector<Finding> find_problems(const CheckResult& result);

// Returns 0 where a job could start; else the exit code of the first problem, or 128 + N after signal N.
int exit_code_of(const CheckResult& result, const std::vector<Finding>& findings);

// Returns the interface that has the host's address; null: none is known.
const InterfaceSurvey* data_interface(const CheckedHost& host);

// Returns "node1, node2", or "node[1-3,7]" for many: names that differ in one number only are written as one.
std::string host_names(const CheckResult& result, const std::vector<int>& hosts);

}  // namespace hvd::launch
