// What a check has found, for programs: one JSON object (launcher/report/README.md lists its fields). Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

// UTF-8, indented, without a newline at its end.
std::string check_json(const CheckResult& result, const std::vector<Finding>& findings);

}  // namespace hvd::launch
