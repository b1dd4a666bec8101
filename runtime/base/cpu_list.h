// Sets of processors, and Linux's way to write them: "0-3,8" (taskset(1) -c, /sys/devices/system).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

using CpuList = std::vector<std::int32_t>;  // numbers of processors, ascending, each once

// One physical core: those of its hardware threads that a process may use, and the memory (NUMA) node that it is near.
struct CpuCore {
  std::int32_t numa_node = 0;
  CpuList cpus;

  friend bool operator==(const CpuCore&, const CpuCore&) = default;
};

// Blanks around it are ignored; empty text is the empty list. An error names what is not a list of numbers below 65536.
Result<CpuList> parse_cpu_list(std::string_view text);
std::string cpu_list_text(const CpuList& cpus);

}  // namespace hvd
