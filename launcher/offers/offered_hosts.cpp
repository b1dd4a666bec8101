#include "launcher/offers/offered_hosts.h"

#include <algorithm>

#include "launcher/job/hostfile.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// True for "node1:4", "[fe80::1]:4" and "node1 slots=4".
bool says_slots(std::string_view line) {
  const auto bracket = line.rfind(']');
  const auto name_end = bracket == std::string_view::npos ? 0 : bracket;
  return line.find("slots") != std::string_view::npos || line.find(':', name_end) != std::string_view::npos;
}

}  // namespace

Result<OfferedHosts> parse_offered_hosts(std::string_view text, int slots, const std::string& where) {
  OfferedHosts offered;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::string_view whole = take_until(text, '\n');
    std::string line(trimmed(whole.substr(0, whole.find('#'))));
    ++line_number;
    if (line.empty()) {
      continue;
    }
    if (!says_slots(line)) {
      if (slots == 0) {
        return Error(Code::kInvalid,
                     where + " says no slots of " + line + "; it is to print host:slots, or give --slots-per-host");
      }
      line += " slots=" + std::to_string(slots);
    }
    const auto hosts = parse_hostfile(line, where);
    if (!hosts.ok()) {
      // Once more with the lines before it, for the place of the error.
      return parse_hostfile(std::string(line_number - 1, '\n') + line, where).error();
    }
    for (const HostSpec& host : hosts.value()) {
      const auto is_same = [&host](const HostSpec& other) { return other.name == host.name; };
      if (std::any_of(offered.hosts.begin(), offered.hosts.end(), is_same)) {
        offered.notes.push_back(where + " names " + host.name + " twice; the first line counts");
      } else {
        offered.hosts.push_back(host);
      }
    }
  }
  return offered;
}

}  // namespace hvd::launch
