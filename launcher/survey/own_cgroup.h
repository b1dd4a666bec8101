// These are the limits that control groups set for this process, in a container as well as under a batch system.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

struct CgroupLimits {
  double processors = 0;  // 0: no limit
  std::uint64_t memory = kUnlimited;
  std::uint64_t processes = kUnlimited;
};

// Returns the narrowest limit of its own group and of all above it, in version 2 or 1 (cgroups(7)), where these are
// mounted at /sys/fs/cgroup. `root` stands before /proc and /sys: it is "" except in tests.
CgroupLimits own_cgroup_limits(const std::string& root = "");

}  // namespace hvd::launch
