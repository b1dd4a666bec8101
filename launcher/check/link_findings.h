// These functions judge the links between the hosts of a check; a part of findings.h. Pure.
#pragma once

#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

// Reports links that do not work, in one finding per unreachable host with all hosts that cannot reach it. Then come
// the links that were not tried, and those that are much slower than the others.
void find_link_faults(const CheckResult& result, std::vector<Finding>& findings);

// True for a link that is much slower than the median, where at least three links were measured.
bool has_slow_round_trip(const CheckResult& result, const CheckedLink& link);
bool has_slow_bandwidth(const CheckResult& result, const CheckedLink& link);

}  // namespace hvd::launch
