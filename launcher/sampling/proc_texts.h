// What the kernel's texts in /proc and the rows of nvidia-smi say, as numbers. Pure; a text that is cut or strange
// gives nullopt or nothing. Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "launcher/wire/sample_messages.h"

namespace hvd::launch {

// The kernel tells these in /proc/PID/stat.
struct ProcessStat {
  std::int32_t parent = 0;
  char state = '?';
  std::uint64_t ticks = 0;  // of processor time: its own, and of its children that have ended and were waited for
  std::uint64_t pages = 0;  // resident
};
std::optional<ProcessStat> parse_process_stat(std::string_view text);

// The ticks in which any processor had work, of the first line of /proc/stat.
std::optional<std::uint64_t> parse_busy_ticks(std::string_view text);

// The kernel tells these in /proc/meminfo; here they are bytes.
struct NodeMemory {
  std::uint64_t total = 0;
  std::uint64_t free = 0;  // what programs could have
};
NodeMemory parse_meminfo(std::string_view text);

// A row of `nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits`. What
// a GPU does not tell ("[N/A]") counts as 0.
std::optional<GpuSample> parse_gpu_row(std::string_view row);

}  // namespace hvd::launch
