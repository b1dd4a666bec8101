// What is wrong with the links between the hosts of a check; a part of findings.h. Pure.
#pragma once

#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

// Links that do not work: those to one host at one finding, with all from where it is not reached. Then those that were
// not tried, and those that are much slower than the others.
void find_link_faults(const CheckResult& result, std::vector<Finding>& findings);

// Among links of which at least three were measured: much slower than the median of them.
bool has_slow_round_trip(const CheckResult& result, const CheckedLink& link);
bool has_slow_bandwidth(const CheckResult& result, const CheckedLink& link);

}  // namespace hvd::launch
