// How many ranks there can be, looked at before anything is made for each of them: a number with a digit too many would
// else fill the memory of this machine, and end other programs there. Open files are each node's own to count, which
// its agent does before the first rank.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/host_spec.h"
#include "launcher/job/job_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// What this machine allows; 0: unknown, or no limit.
struct MachineLimits {
  std::uint64_t processes = 0;
  std::string processes_name{};  // of the limit, for messages
  std::uint64_t memory_bytes = 0;
};
MachineLimits limits_of_this_machine();

// kInvalid: more than Linux or a start message has room for, on whatever host. kResource: more than this machine, which
// is asked for them or holds what is known of them, has.
Result<void> check_rank_count(const HostList& hosts, int size, const MachineLimits& here);

}  // namespace hvd::launch
