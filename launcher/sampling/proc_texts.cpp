#include "launcher/sampling/proc_texts.h"

#include <algorithm>
#include <charconv>

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

// The command, in parentheses, may hold spaces and parentheses itself; the fields count from behind the last one.
std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  const auto close = text.rfind(')');
  if (close == std::string_view::npos) {
    return std::nullopt;
  }
  text.remove_prefix(close + 1);
  ProcessStat stat;
  const std::string_view state = next_word(text);
  if (state.size() != 1) {
    return std::nullopt;
  }
  stat.state = state.front();
  constexpr int kParent = 4;  // as proc(5) numbers the fields
  constexpr int kUserTicks = 14;
  constexpr int kChildrenKernelTicks = 17;
  constexpr int kResidentPages = 24;
  for (int field = kParent; field <= kResidentPages; ++field) {
    const std::string_view word = next_word(text);
    const bool is_wanted =
        field == kParent || field == kResidentPages || (field >= kUserTicks && field <= kChildrenKernelTicks);
    if (word.empty()) {
      return std::nullopt;
    }
    if (!is_wanted) {
      continue;
    }
    const std::optional<std::uint64_t> number = number_of(word);
    if (!number) {
      return std::nullopt;
    }
    if (field == kParent) {
      stat.parent = static_cast<std::int32_t>(*number);
    } else if (field == kResidentPages) {
      stat.pages = *number;
    } else {
      stat.ticks += *number;
    }
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
