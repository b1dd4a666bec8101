// CpuList is a set of processors, with Linux's notation for it: "0-3,8" (taskset(1) -c, /sys/devices/system).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

using CpuList = std::vector<std::int32_t>;  // numbers of processors, ascending, each once

// CpuCore is one physical core: those of its hardware threads that a process may use, and its memory (NUMA) node.
struct CpuCore {
  std::int32_t numa_node = 0;
  CpuList cpus;

  friend bool operator==(const CpuCore&, const CpuCore&) = default;
};

// Blanks around the text are ignored; empty text is the empty list. The error quotes the part that is not a list of
// numbers below 65536.
Result<CpuList> parse_cpu_list(std::string_view text);
std::string cpu_list_text(const CpuList& cpus);

}  // namespace hvd
