// These functions put all hosts to which the same applies into one finding. Pure.
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

// These say nothing of hosts: warn_where() adds them.
Finding warning(Subject subject, std::string what, std::string advice);
Finding problem(Subject subject, int exit_code, std::string what, std::string advice);

// Adds one finding for all hosts that pass `test`, if there are any. `finding` gets the first of them, and the names of
// all.
void warn_where(const CheckResult& result, Findings& findings, const Test& test,
                const std::function<Finding(const CheckedHost& first, const std::string& names)>& finding);

// Warns when a value differs between the hosts that have it. The finding names the hosts that differ from the majority,
// or from the first host where there is no majority.
void warn_of_difference(const CheckResult& result, Findings& findings, Subject subject, const std::string& noun,
                        const Value& value, const std::string& advice);

std::string megabytes(std::uint64_t bytes);

}  // namespace hvd::launch
