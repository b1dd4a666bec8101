#include "runtime/base/cpu_list.h"

#include <algorithm>
#include <charconv>

namespace hvd {
namespace {

// Linux's own limit is 8192. A number far above it is no processor, and a range up to it would be a large allocation.
constexpr std::int32_t kMostCpus = 65536;

bool read_number(std::string_view& text, std::int32_t& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || number < 0 || number >= kMostCpus) {
    return false;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool read_range(std::string_view range, CpuList& cpus) {
  std::int32_t first = 0;
  if (!read_number(range, first)) {
    return false;
  }
  std::int32_t last = first;
  if (range.starts_with('-')) {
    range.remove_prefix(1);
    if (!read_number(range, last) || last < first) {
      return false;
    }
  }
  for (std::int32_t cpu = first; cpu <= last; ++cpu) {
    cpus.push_back(cpu);
  }
  return range.empty();
}

}  // namespace

Result<CpuList> parse_cpu_list(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return CpuList{};
  }
  text = text.substr(first, text.find_last_not_of(kBlank) - first + 1);
  CpuList cpus;
  for (;;) {
    const std::size_t end = std::min(text.find(','), text.size());
    if (!read_range(text.substr(0, end), cpus)) {
      return Error(Code::kInvalid, "expected processors as in 0-3,8, found '" + std::string(text.substr(0, end)) + "'");
    }
    if (end == text.size()) {
      break;
    }
    text.remove_prefix(end + 1);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpu_list_text(const CpuList& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) {
      ++last;
    }
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) {
      text += (last == i + 1 ? "," : "-") + std::to_string(cpus[last]);
    }
    i = last + 1;
  }
  return text;
}

}  // namespace hvd
