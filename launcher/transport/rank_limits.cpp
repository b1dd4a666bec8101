#include "launcher/transport/rank_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "launcher/transport/transport_choice.h"
#include "launcher/wire/messages.h"

namespace hvd::launch {
namespace {

// A start message needs at least this much for each rank: the shortest possible environment.
constexpr std::uint64_t kStartBytesOfRank = 1024;
constexpr std::uint64_t kMostRanksOfNode = kAgentFrames.max_length / kStartBytesOfRank;
// hvdrun keeps this much for each rank of the job: its place, its start message, its last lines. Measured: 4.4 KB.
constexpr std::uint64_t kLauncherBytesOfRank = 4608;
// Every process takes at least this much, even the smallest program: stack, page tables, the kernel's own data.
constexpr std::uint64_t kProcessBytesOfRank = 128U << 10U;

std::uint64_t number_in(const char* file, const std::string& key = "") {
  std::ifstream in(file);
  std::string word;
  while (!key.empty() && in >> word && word != key) {
  }
  std::uint64_t number = 0;
  return in >> number ? number : 0;
}

std::uint64_t least_known(std::uint64_t a, std::uint64_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

std::string text_of(std::uint64_t bytes) {
  return std::to_string(bytes >> 20U) + " MiB";
}

Error too_many(Code code, const std::string& where, std::uint64_t ranks, const std::string& why) {
  return {code, std::to_string(ranks) + " ranks" + where + ": " + why};
}

Result<void> check_here(const std::string& host, std::uint64_t ranks, const MachineLimits& here) {
  const std::string where = " on " + host;
  if (here.processes > 0 && ranks > here.processes) {
    return too_many(Code::kResource, where, ranks,
                    "this machine allows " + std::to_string(here.processes) + " processes (" + here.processes_name +
                        "); ask for fewer ranks (-np), or name more hosts (-H)");
  }
  if (here.memory_bytes > 0 && ranks * kProcessBytesOfRank > here.memory_bytes) {
    return too_many(Code::kResource, where, ranks,
                    "the smallest of programs would need " + text_of(ranks * kProcessBytesOfRank) +
                        " of memory, and this machine has " + text_of(here.memory_bytes) +
                        "; ask for fewer ranks (-np), or name more hosts (-H)");
  }
  return {};
}

}  // namespace

MachineLimits limits_of_this_machine() {
  MachineLimits limits;
  limits.processes = number_in("/proc/sys/kernel/pid_max");
  limits.processes_name = "kernel.pid_max";
  rlimit own{};
  // Root may have more processes than its limit says.
  if (::geteuid() != 0 && ::getrlimit(RLIMIT_NPROC, &own) == 0 && own.rlim_cur != RLIM_INFINITY &&
      own.rlim_cur < limits.processes) {
    limits.processes = own.rlim_cur;
    limits.processes_name = "ulimit -u";
  }
  if (const auto threads = number_in("/proc/sys/kernel/threads-max"); threads > 0 && threads < limits.processes) {
    limits.processes = threads;
    limits.processes_name = "kernel.threads-max";
  }
  limits.memory_bytes =
      least_known(number_in("/proc/meminfo", "MemTotal:") << 10U, number_in("/sys/fs/cgroup/memory.max"));
  return limits;
}

Result<void> check_rank_count(const HostList& hosts, int size, const MachineLimits& here) {
  std::uint64_t slots = 0;
  for (const HostSpec& host : hosts) {
    slots += static_cast<std::uint64_t>(std::max(host.slots, 0));
  }
  const std::uint64_t wanted = size > 0 ? static_cast<std::uint64_t>(size) : slots;
  std::uint64_t left = wanted;
  for (const HostSpec& host : hosts) {
    const std::uint64_t ranks = std::min(left, static_cast<std::uint64_t>(std::max(host.slots, 0)));
    left -= ranks;
    if (ranks > kMostRanksOfNode) {
      return too_many(Code::kInvalid, " on " + host.name, ranks,
                      "at most " + std::to_string(kMostRanksOfNode) +
                          " can be started on a host, whose start message has " + text_of(kAgentFrames.max_length) +
                          "; ask for fewer ranks (-np), or name more hosts (-H)");
    }
    if (is_here(host)) {
      HVD_TRY(check_here(host.name, ranks, here));
    }
  }
  if (here.memory_bytes > 0 && wanted * kLauncherBytesOfRank > here.memory_bytes / 2) {
    return too_many(Code::kResource, "", wanted,
                    "hvdrun would need " + text_of(wanted * kLauncherBytesOfRank) +
                        " of memory to lead them, and this machine has " + text_of(here.memory_bytes));
  }
  return {};
}

}  // namespace hvd::launch
