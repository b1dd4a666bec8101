// Runs a short program for what it prints. It waits: for use where there is nothing else to do yet.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Both its streams, at most 1 MiB. An error when it cannot be started, fails, prints more or is late; then it is
// killed.
Result<std::string> output_of(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                              Deadline deadline);

}  // namespace hvd::launch
