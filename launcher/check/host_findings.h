// These functions judge a host's limits, its space and its programs; a part of findings.h. Pure.
#pragma once

#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

void find_low_limits(const CheckResult& result, std::vector<Finding>& findings);
void find_low_space(const CheckResult& result, std::vector<Finding>& findings);
void find_missing_programs(const CheckResult& result, std::vector<Finding>& findings);
void find_version_faults(const CheckResult& result, std::vector<Finding>& findings);
void find_mpirun_faults(const CheckResult& result, std::vector<Finding>& findings);

}  // namespace hvd::launch
