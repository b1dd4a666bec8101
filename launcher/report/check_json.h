// check_json() returns what a check has found as one JSON object, for programs (launcher/docs/json.md lists its
// fields). Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

// Returns UTF-8, indented, without a newline at its end.
std::string check_json(const CheckResult& result, const std::vector<Finding>& findings);

}  // namespace hvd::launch
