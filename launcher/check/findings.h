// Findings: what is wrong, or may be, with the hosts of a check, each with what to try. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/check/check_result.h"

namespace hvd::launch {

// What a finding is about: the column or line of the table that it belongs to.
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
  kMpirun,
  kLink,
  kSpeed
};

// "reach", "link" ...: for programs.
const char* name_of(Subject subject);

struct Finding {
  Subject subject = Subject::kReach;
  bool is_problem = false;  // a job could not start; else a warning
  int exit_code = 0;        // that such a job would have ended with; 0: a warning
  std::vector<int> hosts;   // indexes
  std::string what;
  std::string advice;  // what to try; empty: `what` has it, or there is nothing to do
};

// The limits beyond which there is something to say.
inline constexpr Duration kMostSkew = std::chrono::seconds(2);
inline constexpr std::uint64_t kLeastOpenFiles = 1024;
inline constexpr std::uint64_t kLeastProcesses = 256;
inline constexpr std::uint64_t kLeastShared = 64U << 20U;
inline constexpr std::uint64_t kLeastSpace = 64U << 20U;
inline constexpr std::uint64_t kLeastMemory = 256U << 20U;
inline constexpr std::uint64_t kLeastLocked = 64U << 20U;  // where there are GPUs or InfiniBand
inline constexpr std::int32_t kLeastPorts = 1000;
// Of the median over all links: beyond it, one is called slow.
inline constexpr double kSlowRoundTrip = 5;
inline constexpr double kSlowBandwidth = 0.25;

// Problems first, in the order of Subject.
std::vector<Finding> find_problems(const CheckResult& result);

// 0 where a job could start; else the exit code that it would have ended with, or 128 + N of an interrupted check.
int exit_code_of(const CheckResult& result, const std::vector<Finding>& findings);

// The interface that has the host's address; null: none that is known.
const InterfaceSurvey* data_interface(const CheckedHost& host);

// "node1, node2", or "node[1-3,7]" of many: names that differ in one number only are written as one.
std::string host_names(const CheckResult& result, const std::vector<int>& hosts);

}  // namespace hvd::launch
