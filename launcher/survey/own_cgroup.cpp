#include "launcher/survey/own_cgroup.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

namespace fs = std::filesystem;

// A version 1 group without a limit holds the largest multiple of the page size that fits.
constexpr std::uint64_t kVersion1Unlimited = std::uint64_t{1} << 62U;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::istringstream in(first_line_of_file(file));
  std::uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;  // "max" is none
}

// Returns the group's path as /proc has it; an empty `controller` means version 2.
std::optional<std::string> path_of(const fs::path& root, const std::string& controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_wanted =
        controller.empty() ? controllers == ",," : controllers.find("," + controller + ",") != std::string::npos;
    if (is_wanted) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// Visits the group and all above it, up to where they are mounted. In a container without its own namespace the path is
// the machine's, and only the end of it, or nothing, exists here.
void visit_groups(const fs::path& mount, const std::string& path, const std::function<void(const fs::path&)>& visit) {
  fs::path rest = fs::path(path).relative_path();
  for (;;) {
    visit(mount / rest);
    if (rest.empty()) {
      return;
    }
    rest = rest.parent_path();
  }
}

void take_version_2(const fs::path& group, CgroupLimits& limits) {
  std::istringstream cpu(first_line_of_file(group / "cpu.max"));
  double quota = 0;
  double period = 0;
  if (cpu >> quota >> period && quota > 0 && period > 0) {
    limits.processors = limits.processors > 0 ? std::min(limits.processors, quota / period) : quota / period;
  }
  limits.memory = std::min(limits.memory, number_in(group / "memory.max").value_or(kUnlimited));
  limits.processes = std::min(limits.processes, number_in(group / "pids.max").value_or(kUnlimited));
}

void take_version_1(const fs::path& root, CgroupLimits& limits) {
  const fs::path mounts = root / "sys/fs/cgroup";
  if (const auto path = path_of(root, "memory")) {
    visit_groups(mounts / "memory", *path, [&limits](const fs::path& group) {
      const auto bytes = number_in(group / "memory.limit_in_bytes");
      if (bytes && *bytes < kVersion1Unlimited) {
        limits.memory = std::min(limits.memory, *bytes);
      }
    });
  }
  if (const auto path = path_of(root, "pids")) {
    visit_groups(mounts / "pids", *path, [&limits](const fs::path& group) {
      limits.processes = std::min(limits.processes, number_in(group / "pids.max").value_or(kUnlimited));
    });
  }
  if (const auto path = path_of(root, "cpu")) {
    visit_groups(mounts / "cpu", *path, [&limits](const fs::path& group) {
      const auto quota = number_in(group / "cpu.cfs_quota_us");  // -1, for none, is no such number
      const auto period = number_in(group / "cpu.cfs_period_us");
      if (quota && period && *quota > 0 && *quota < kVersion1Unlimited && *period > 0) {
        const double processors = static_cast<double>(*quota) / static_cast<double>(*period);
        limits.processors = limits.processors > 0 ? std::min(limits.processors, processors) : processors;
      }
    });
  }
}

}  // namespace

CgroupLimits own_cgroup_limits(const std::string& root) {
  const fs::path base = root.empty() ? "/" : root;
  CgroupLimits limits;
  if (const auto path = path_of(base, "")) {
    visit_groups(base / "sys/fs/cgroup", *path, [&limits](const fs::path& group) { take_version_2(group, limits); });
  }
  take_version_1(base, limits);
  return limits;
}

}  // namespace hvd::launch
