#include "launcher/job/host_list.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "launcher/job/host_range.h"
#include "launcher/job/text_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr int kMaxSlots = 1'000'000;
constexpr int kMaxPort = 65535;
constexpr int kMaxGpu = 9999;

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

bool is_v6_char(char c) {
  return is_host_char(c) || c == ':' || c == '%';
}

Error bad(const std::string& where, const std::string& what) {
  return Error(
      Code::kInvalid,
      where + ": " + what +
          "; a host is written [user@]name[[:port]:slots][@gpu,...], as in node1:4, node1:2222:4 or node1:2@0,3");
}

// A name with a leading dash would be taken for an option by the programs that get it.
bool is_name(std::string_view text, bool (*is_allowed)(char)) {
  return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), is_allowed);
}

Result<int> number_of(std::string_view text, int most, const std::string& what, const std::string& where) {
  const std::optional<int> number = parse_number<int>(text, 1, most);
  if (!number) {
    return bad(where, "expected " + what + " of 1 or more, found '" + shown_text(text) + "'");
  }
  return *number;
}

// Parses "", ":slots" or ":port:slots".
Result<void> read_port_and_slots(std::string_view text, HostSpec& host, const std::string& where) {
  if (text.empty()) {
    return {};
  }
  text.remove_prefix(1);
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    HVD_TRY_ASSIGN(host.port, number_of(text.substr(0, colon), kMaxPort, "an SSH port", where));
    text.remove_prefix(colon + 1);
  }
  HVD_TRY_ASSIGN(host.slots, number_of(text, kMaxSlots, "a number of slots", where));
  return {};
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns the position of "@0,3" in "node1:2@0,3"; npos: there is none, as in "user@node1".
std::size_t gpus_at(std::string_view entry) {
  const auto at = entry.rfind('@');
  const bool is_list = at != std::string_view::npos && at + 1 < entry.size() &&
                       entry.find_first_not_of("0123456789, \t", at + 1) == std::string_view::npos;
  return is_list ? at : std::string_view::npos;
}

Result<std::vector<int>> parse_gpus(std::string_view text, const std::string& where) {
  std::vector<int> gpus;
  for (;;) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view word = trimmed(text.substr(0, end));
    const std::optional<int> number = parse_number<int>(word, 0, kMaxGpu);
    if (!number) {
      return bad(where, "expected the number of a GPU, found '" + shown_text(word) + "'");
    }
    if (std::find(gpus.begin(), gpus.end(), *number) != gpus.end()) {
      return bad(where, "GPU " + std::to_string(*number) + " is named twice");
    }
    gpus.push_back(*number);
    if (end == text.size()) {
      return gpus;
    }
    text.remove_prefix(end + 1);
  }
}

// Returns the end of a host name: in "[::1]:4" the end of the address, in "n[1-2]:4" that of the range.
std::size_t name_size(std::string_view text) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    inside = text[i] == '[' || (inside && text[i] != ']');
    if (text[i] == ':' && !inside) {
      return i;
    }
  }
  return text.size();
}

// Refuses "node1 slots=4", which is a line of a host file, and says how an entry has its slots.
Result<void> check_no_file_line(std::string_view entry, const std::string& where) {
  constexpr std::string_view kKey = "slots=";
  const auto blank = entry.find_first_of(" \t");
  const std::string_view rest = trimmed(entry.substr(std::min(blank, entry.size())));
  if (!rest.starts_with(kKey)) {
    return {};
  }
  const std::string_view slots = rest.substr(kKey.size());
  return bad(where,
             "'" + shown_text(entry) + "' is a line of a host file, whose slots stand here behind a ':', as in " +
                 shown_text(entry.substr(0, blank)) + ":" + shown_text(slots.substr(0, slots.find_first_of(" \t"))));
}

Result<std::vector<std::string>> parse_names(std::string_view text, const std::string& where) {
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) {
      return bad(where, "'[' without ']' in '" + shown_text(text) + "'");
    }
    if (close + 1 != text.size()) {
      return bad(where, "expected ':slots' after ']', found '" + shown_text(text.substr(close + 1)) + "'");
    }
    const std::string_view address = text.substr(1, close - 1);
    if (!is_name(address, is_v6_char)) {
      return bad(where, "expected an IPv6 address in brackets, found '" + shown_text(address) + "'");
    }
    return std::vector<std::string>{std::string(address)};
  }
  auto names = expand_host_range(text);
  if (!names.ok()) {
    return bad(where, names.error().message());
  }
  if (!is_name(names.value().front(), is_host_char)) {
    return bad(where, "expected a host name, found '" + shown_text(text) + "'");
  }
  return names;
}

}  // namespace

Result<HostList> parse_host_entry(std::string_view entry, const std::string& where) {
  HVD_TRY(check_no_file_line(entry, where));
  HostSpec spec;
  std::string_view rest = entry;
  if (const auto at = gpus_at(rest); at != std::string_view::npos) {
    HVD_TRY_ASSIGN(spec.gpus, parse_gpus(rest.substr(at + 1), where));
    rest = rest.substr(0, at);
  }
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    spec.user = std::string(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    if (spec.user.find(':') != std::string::npos) {
      return bad(where, "expected the numbers of GPUs after '@', found '" + shown_text(rest) + "'");
    }
    if (!is_name(spec.user, is_host_char)) {
      return bad(where, "expected a user name before '@', found '" + shown_text(spec.user) + "'");
    }
  }
  const std::size_t size = name_size(rest);
  const std::string_view numbers = rest.substr(size);
  if (std::count(numbers.begin(), numbers.end(), ':') > 2 || numbers.find("::") != std::string_view::npos) {
    return bad(where, "'" + shown_text(entry) + "' has several ':'; put an IPv6 address in brackets, as in [::1]:4");
  }
  HVD_TRY_ASSIGN(const auto names, parse_names(rest.substr(0, size), where));
  HVD_TRY(read_port_and_slots(numbers, spec, where));
  HostList hosts;
  for (const std::string& name : names) {
    spec.name = name;
    hosts.push_back(spec);
  }
  return hosts;
}

Result<HostList> parse_host_list(std::string_view text) {
  HostList hosts;
  std::size_t begin = 0;
  bool inside = false;  // inside brackets, whose commas separate no hosts
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] != ',' || inside)) {
      inside = text[i] == '[' || (inside && text[i] != ']');
      continue;
    }
    const std::string_view next = text.substr(std::min(i + 1, text.size()));
    if (is_digits(trimmed(next.substr(0, next.find(',')))) &&
        gpus_at(text.substr(begin, i - begin)) != std::string_view::npos) {
      continue;  // the number is one more GPU of this host
    }
    const std::string_view name = trimmed(text.substr(begin, i - begin));
    const auto at = name.empty() ? begin : static_cast<std::size_t>(name.data() - text.data());
    const std::string where = "host list, column " + std::to_string(at + 1);
    HVD_TRY_ASSIGN(const HostList entry, parse_host_entry(name, where));
    hosts.insert(hosts.end(), entry.begin(), entry.end());
    begin = i + 1;
  }
  return merge_repeated(std::move(hosts));
}

HostList merge_repeated(HostList hosts) {
  HostList merged;
  std::map<std::tuple<std::string, std::string, int>, std::size_t> places;
  for (HostSpec& host : hosts) {
    const auto [place, is_new] = places.try_emplace({host.name, host.user, host.port}, merged.size());
    if (is_new) {
      merged.push_back(std::move(host));
    } else {
      HostSpec& first = merged[place->second];
      first.slots += host.slots;
      for (const int gpu : host.gpus) {
        if (std::find(first.gpus.begin(), first.gpus.end(), gpu) == first.gpus.end()) {
          first.gpus.push_back(gpu);
        }
      }
    }
  }
  return merged;
}

void spread_slots(int size, HostList& hosts) {
  const int nodes = static_cast<int>(hosts.size());
  for (int index = 0; index < nodes; ++index) {
    hosts[static_cast<std::size_t>(index)].slots = size / nodes + (index < size % nodes ? 1 : 0);
  }
  std::erase_if(hosts, [](const HostSpec& host) { return host.slots == 0; });
}

}  // namespace hvd::launch
