// One finding for all hosts of which the same is so. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

using Findings = std::vector<Finding>;
using Test = std::function<bool(const CheckedHost&)>;
using Value = std::function<std::optional<std::string>(const CheckedHost&)>;

std::vector<int> hosts_where(const CheckResult& result, const Test& test);

Finding warning(Subject subject, std::vector<int> hosts, std::string what, std::string advice);

// The same of all hosts for which it is so, in one finding.
void warn_where(const CheckResult& result, Findings& findings, const Test& test,
                const std::function<Finding(std::vector<int>)>& finding);

// What is not the same on all hosts that have it. The hosts of the finding are those that differ from the most, or from
// the first, where there is no most.
void warn_of_difference(const CheckResult& result, Findings& findings, Subject subject, const std::string& noun,
                        const Value& value, const std::string& advice);

std::string megabytes(std::uint64_t bytes);

}  // namespace hvd::launch
