#include "launcher/survey/own_cores.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

namespace fs = std::filesystem;

// Returns an empty list when the file is not there or does not hold a list.
CpuList list_in(const fs::path& file) {
  auto cpus = parse_cpu_list(text_of_file(file));
  return cpus.ok() ? std::move(cpus).value() : CpuList{};
}

std::map<std::int32_t, std::int32_t> numa_nodes_of_cpus(const fs::path& root) {
  std::map<std::int32_t, std::int32_t> node_of;
  const fs::path nodes = root / "sys/devices/system/node";
  for (const std::int32_t node : list_in(nodes / "online")) {
    for (const std::int32_t cpu : list_in(nodes / ("node" + std::to_string(node)) / "cpulist")) {
      node_of[cpu] = node;
    }
  }
  return node_of;
}

}  // namespace

CpuList allowed_cpus() {
  // The kernel refuses a set that is smaller than its own, and does not say how large that is.
  for (std::size_t count = 1024; count <= (1U << 16U); count *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count), [](cpu_set_t* s) { CPU_FREE(s); });
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    if (set == nullptr || ::sched_getaffinity(0, bytes, set.get()) != 0) {
      continue;
    }
    CpuList cpus;
    for (std::size_t cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) {
        cpus.push_back(static_cast<std::int32_t>(cpu));
      }
    }
    return cpus;
  }
  return {0};
}

std::vector<CpuCore> own_cores(const CpuList& allowed, const std::string& root) {
  const fs::path base = root.empty() ? "/" : root;
  const auto node_of = numa_nodes_of_cpus(base);
  std::vector<CpuCore> cores;
  CpuList rest = allowed;
  while (!rest.empty()) {
    const std::int32_t first = rest.front();
    const fs::path topology = base / "sys/devices/system/cpu" / ("cpu" + std::to_string(first)) / "topology";
    CpuList siblings = list_in(topology / "core_cpus_list");
    if (siblings.empty()) {
      siblings = list_in(topology / "thread_siblings_list");  // its name before Linux 5.3
    }
    CpuCore core;
    std::set_intersection(rest.begin(), rest.end(), siblings.begin(), siblings.end(), std::back_inserter(core.cpus));
    if (core.cpus.empty() || core.cpus.front() != first) {
      core.cpus = {first};
    }
    const auto node = node_of.find(first);
    core.numa_node = node == node_of.end() ? 0 : node->second;
    CpuList left;
    std::set_difference(rest.begin(), rest.end(), core.cpus.begin(), core.cpus.end(), std::back_inserter(left));
    rest = std::move(left);
    cores.push_back(std::move(core));
  }
  std::stable_sort(cores.begin(), cores.end(),
                   [](const CpuCore& a, const CpuCore& b) { return a.numa_node < b.numa_node; });
  return cores;
}

}  // namespace hvd::launch
