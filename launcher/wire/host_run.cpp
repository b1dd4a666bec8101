#include "launcher/wire/host_run.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::uint32_t kMostDigits = 9;  // so that a number fits into 32 bits

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the name of the machine with this index in the run.
std::string name_in(const HostRun& run, std::uint32_t index) {
  if (run.count == 1) {
    return run.before;
  }
  const std::string number = std::to_string(std::uint64_t{run.first} + index);
  return run.before + std::string(run.width - std::min<std::size_t>(run.width, number.size()), '0') + number +
         run.after;
}

// Makes a run of two machines of these names, or leaves the run as it is. The number is where the names differ, with
// the digits around that.
bool make_two(HostRun& run, std::string_view next) {
  const std::string_view name = run.before;
  const auto most = std::min(name.size(), next.size());
  std::size_t begin = static_cast<std::size_t>(
      std::mismatch(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(most), next.begin()).first - name.begin());
  while (begin > 0 && is_digit(name[begin - 1])) {
    --begin;
  }
  const auto digits = static_cast<std::size_t>(
      std::find_if_not(name.begin() + static_cast<std::ptrdiff_t>(begin), name.end(), is_digit) - name.begin() -
      static_cast<std::ptrdiff_t>(begin));
  const auto number =
      parse_number<std::uint32_t>(name.substr(begin, digits), 0, std::numeric_limits<std::uint32_t>::max());
  if (digits > kMostDigits || !number) {
    return false;
  }
  HostRun two = run;
  two.before = name.substr(0, begin);
  two.after = name.substr(begin + digits);
  two.first = *number;
  two.width = static_cast<std::uint32_t>(digits);
  two.count = 2;
  if (name_in(two, 0) != name || name_in(two, 1) != next) {
    return false;
  }
  run = two;
  return true;
}

// Adds a machine to the run if its name is the next one.
bool extend(HostRun& run, const std::string& name) {
  if (run.count == 1) {
    return make_two(run, name);
  }
  const bool is_next = name_in(run, run.count) == name;
  run.count += is_next ? 1 : 0;
  return is_next;
}

}  // namespace

std::vector<HostRun> runs_of(const std::vector<std::pair<std::string, int>>& machines) {
  std::vector<HostRun> runs;
  for (const auto& [name, slots] : machines) {
    if (runs.empty() || runs.back().slots != slots || !extend(runs.back(), name)) {
      runs.push_back(HostRun{name, "", 0, 0, 1, slots});
    }
  }
  return runs;
}

bool are_valid(const std::vector<HostRun>& runs) {
  constexpr std::uint64_t kOtherBytes = 32;  // of a line, for its numbers and " slots="
  std::uint64_t bytes = 0;
  for (const HostRun& run : runs) {
    bytes += run.count * (run.before.size() + run.after.size() + kOtherBytes);
    if (run.count == 0 || run.width > kMostDigits || bytes > kMostHostfileBytes) {
      return false;
    }
  }
  return true;
}

std::string hostfile_text(const std::vector<HostRun>& runs) {
  std::string text;
  for (const HostRun& run : runs) {
    for (std::uint32_t index = 0; index < run.count; ++index) {
      text += name_in(run, index) + " slots=" + std::to_string(run.slots) + "\n";
    }
  }
  return text;
}

}  // namespace hvd::launch
