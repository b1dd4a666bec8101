// check_text() prints what a check has found, for a person. It shows a table of the hosts, what they have in common and
// where they differ, the links between them, and what is wrong, with what to try. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/check/findings.h"

namespace hvd::launch {

struct CheckTextOptions {
  std::size_t width = 80;  // columns; longer words exceed it
  bool color = false;
  bool only_findings = false;  // --quiet
};

// Returns lines without newlines. Text that comes from hosts is escaped, so that it cannot control the terminal.
std::vector<std::string> check_text(const CheckResult& result, const std::vector<Finding>& findings,
                                    const CheckTextOptions& options);

// These are the parts of check_text().
std::vector<std::string> host_table(const CheckResult& result, const std::vector<Finding>& findings,
                                    const CheckTextOptions& options);
// Values that several hosts share are printed once.
std::vector<std::string> host_details(const CheckResult& result, const std::vector<Finding>& findings,
                                      const CheckTextOptions& options);
std::vector<std::string> link_table(const CheckResult& result, const CheckTextOptions& options);

}  // namespace hvd::launch
