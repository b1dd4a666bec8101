// expand_host_range() reads Slurm's way to write several host names as one, "n[01-03,7]-[a]" (scontrol show hostlist).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

// Returns the names in order; just the name itself when it has no brackets. A number keeps the width of its range's
// first number. Errors say what was expected, without a place.
Result<std::vector<std::string>> expand_host_range(std::string_view name);

}  // namespace hvd::launch
