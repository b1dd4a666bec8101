#include "launcher/sampling/proc_texts.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

std::string_view next_word(std::string_view& text) {
  const auto begin = text.find_first_not_of(" \t\n,");
  if (begin == std::string_view::npos) {
    text = {};
    return {};
  }
  const auto end = std::min(text.find_first_of(" \t\n,", begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

std::optional<std::uint64_t> number_of(std::string_view word) {
  std::uint64_t number = 0;
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), number);
  return failed == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

std::uint64_t kilobytes_of(std::string_view text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string_view::npos || (at > 0 && text[at - 1] != '\n')) {
    return 0;
  }
  text.remove_prefix(at + key.size());
  return number_of(next_word(text)).value_or(0) << 10U;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  constexpr int kState = 3;  // as proc(5) numbers the fields
  constexpr int kParent = 4;
  constexpr int kUserTicks = 14;
  constexpr int kChildrenKernelTicks = 17;
  constexpr int kResidentPages = 24;
  const std::string_view state = stat_field(text, kState);
  const auto parent = parse_number<std::int32_t>(stat_field(text, kParent));
  const auto pages = number_of(stat_field(text, kResidentPages));
  if (state.size() != 1 || !parent || !pages) {
    return std::nullopt;
  }
  ProcessStat stat{*parent, state.front(), 0, *pages};
  for (int field = kUserTicks; field <= kChildrenKernelTicks; ++field) {
    const std::optional<std::uint64_t> ticks = number_of(stat_field(text, field));
    if (!ticks) {
      return std::nullopt;
    }
    stat.ticks += *ticks;
  }
  return stat;
}

std::optional<std::uint64_t> parse_busy_ticks(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  if (next_word(line) != "cpu") {
    return std::nullopt;
  }
  constexpr int kIdle = 4;  // user nice system idle iowait irq softirq steal; guests are within user and nice
  constexpr int kWaiting = 5;
  constexpr int kLast = 8;
  std::uint64_t busy = 0;
  for (int field = 1; field <= kLast; ++field) {
    const std::optional<std::uint64_t> ticks = number_of(next_word(line));
    if (!ticks) {
      return field > kIdle ? std::optional(busy) : std::nullopt;
    }
    busy += field == kIdle || field == kWaiting ? 0 : *ticks;
  }
  return busy;
}

NodeMemory parse_meminfo(std::string_view text) {
  return {kilobytes_of(text, "MemTotal:"), kilobytes_of(text, "MemAvailable:")};
}

std::optional<GpuSample> parse_gpu_row(std::string_view row) {
  const std::optional<std::uint64_t> index = number_of(next_word(row));
  if (!index || *index > 1024) {
    return std::nullopt;
  }
  GpuSample gpu;
  gpu.index = static_cast<std::int32_t>(*index);
  gpu.busy_percent = static_cast<std::int32_t>(std::min<std::uint64_t>(number_of(next_word(row)).value_or(0), 100));
  gpu.memory_bytes = number_of(next_word(row)).value_or(0) << 20U;
  gpu.memory_total = number_of(next_word(row)).value_or(0) << 20U;
  return gpu;
}

}  // namespace hvd::launch
