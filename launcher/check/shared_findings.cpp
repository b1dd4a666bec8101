#include "launcher/check/shared_findings.h"

#include <algorithm>
#include <map>
#include <utility>

namespace hvd::launch {

std::vector<int> hosts_where(const CheckResult& result, const Test& test) {
  std::vector<int> hosts;
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    if (test(result.hosts[host])) {
      hosts.push_back(static_cast<int>(host));
    }
  }
  return hosts;
}

Finding warning(Subject subject, std::vector<int> hosts, std::string what, std::string advice) {
  return {subject, false, 0, std::move(hosts), std::move(what), std::move(advice)};
}

Finding warning(Subject subject, std::string what, std::string advice) {
  return warning(subject, {}, std::move(what), std::move(advice));
}

Finding problem(Subject subject, int exit_code, std::string what, std::string advice) {
  return {subject, true, exit_code, {}, std::move(what), std::move(advice)};
}

void warn_where(const CheckResult& result, Findings& findings, const Test& test,
                const std::function<Finding(const CheckedHost& first, const std::string& names)>& finding) {
  if (std::vector<int> hosts = hosts_where(result, test); !hosts.empty()) {
    const CheckedHost& first = result.hosts[static_cast<std::size_t>(hosts.front())];
    findings.push_back(finding(first, host_names(result, hosts)));
    findings.back().hosts = std::move(hosts);
  }
}

void warn_of_difference(const CheckResult& result, Findings& findings, Subject subject, const std::string& noun,
                        const Value& value, const std::string& advice) {
  std::map<std::string, std::vector<int>> hosts_of;
  for (std::size_t host = 0; host < result.hosts.size(); ++host) {
    if (const auto own = value(result.hosts[host])) {
      hosts_of[*own].push_back(static_cast<int>(host));
    }
  }
  if (hosts_of.size() < 2) {
    return;
  }
  const auto most = std::max_element(hosts_of.begin(), hosts_of.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), -a.second.front()) < std::pair(b.second.size(), -b.second.front());
  });
  std::vector<int> others;
  std::string what = noun + " not the same on all hosts: ";
  for (auto at = hosts_of.begin(); at != hosts_of.end(); ++at) {
    what += (at == hosts_of.begin() ? "" : "; ") + at->first + " on " + host_names(result, at->second);
    if (at != most) {
      others.insert(others.end(), at->second.begin(), at->second.end());
    }
  }
  std::sort(others.begin(), others.end());
  findings.push_back(warning(subject, std::move(others), std::move(what), advice));
}

std::string megabytes(std::uint64_t bytes) {
  return std::to_string(bytes >> 20U) + " MiB";
}

}  // namespace hvd::launch
