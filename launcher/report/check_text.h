// What a check has found, for a person: a table of the hosts, what they have in common and where they differ, the links
// between them, and what is wrong, with what to try. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

struct CheckTextOptions {
  std::size_t width = 80;  // columns; words that are longer stand over
  bool color = false;
  bool only_findings = false;  // --quiet
};

// Lines without newlines. What hosts say of themselves cannot command the terminal.
std::vector<std::string> check_text(const CheckResult& result, const std::vector<Finding>& findings,
                                    const CheckTextOptions& options);

// Its parts.
std::vector<std::string> host_table(const CheckResult& result, const std::vector<Finding>& findings,
                                    const CheckTextOptions& options);
// What is the same on several hosts is told once.
std::vector<std::string> host_details(const CheckResult& result, const std::vector<Finding>& findings,
                                      const CheckTextOptions& options);
std::vector<std::string> link_table(const CheckResult& result, const CheckTextOptions& options);

}  // namespace hvd::launch
