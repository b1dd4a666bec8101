// These checks limit how many ranks a job can have, before anything is allocated for each of them. A number with one
// digit too many would otherwise fill this machine's memory and end other programs on it. Open files are counted on
// each node, by its agent, before the first rank starts.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/host_spec.h"
#include "launcher/job/job_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// MachineLimits is what this machine allows; 0: unknown, or no limit.
struct MachineLimits {
  std::uint64_t processes = 0;
  std::string processes_name{};  // the limit's name, for messages
  std::uint64_t memory_bytes = 0;
};
MachineLimits limits_of_this_machine();

// kInvalid: there are more ranks than Linux or a start message has room for, on any host. kResource: there are more
// than this machine can hold, as their host or as the launcher that keeps a record of each.
Result<void> check_rank_count(const HostList& hosts, int size, const MachineLimits& here);

}  // namespace hvd::launch
