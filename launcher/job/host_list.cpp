#include "launcher/job/host_list.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace hvd::launch {
namespace {

constexpr int kMaxSlots = 1'000'000;

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

Error bad(const std::string& where, const std::string& what) {
  return Error(Code::kInvalid, where + ": " + what + "; a host is written [user@]name[:slots], as in node1:4");
}

Result<int> parse_slots(std::string_view text, const std::string& where, const std::string& host) {
  int slots = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (failed != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMaxSlots) {
    return bad(where,
               "expected a number of slots (1 or more) after '" + host + ":', found '" + std::string(text) + "'");
  }
  return slots;
}

}  // namespace

Result<HostSpec> parse_host(std::string_view entry, const std::string& where) {
  HostSpec spec;
  std::string_view rest = entry;
  if (const auto at = rest.find('@'); at != std::string_view::npos) {
    spec.user = std::string(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    // A leading dash would be taken for an option by the programs that the name is given to.
    if (spec.user.empty() || spec.user.front() == '-' ||
        !std::all_of(spec.user.begin(), spec.user.end(), is_host_char)) {
      return bad(where, "expected a user name before '@', found '" + spec.user + "'");
    }
  }
  std::string_view after;
  if (!rest.empty() && rest.front() == '[') {
    const auto close = rest.find(']');
    if (close == std::string_view::npos) {
      return bad(where, "'[' without ']' in '" + std::string(entry) + "'");
    }
    spec.name = std::string(rest.substr(1, close - 1));
    after = rest.substr(close + 1);
    const auto is_v6_char = [](char c) { return is_host_char(c) || c == ':' || c == '%'; };
    if (spec.name.empty() || spec.name.front() == '-' || !std::all_of(spec.name.begin(), spec.name.end(), is_v6_char)) {
      return bad(where, "expected an IPv6 address in brackets, found '" + spec.name + "'");
    }
    if (!after.empty() && after.front() != ':') {
      return bad(where, "expected ':slots' after ']', found '" + std::string(after) + "'");
    }
  } else {
    const auto colon = rest.find(':');
    spec.name = std::string(rest.substr(0, colon));
    after = colon == std::string_view::npos ? std::string_view() : rest.substr(colon);
    if (after.find(':', 1) != std::string_view::npos) {
      return bad(where, "'" + std::string(entry) + "' has several ':'; put an IPv6 address in brackets, as in [::1]:4");
    }
    if (spec.name.empty() || spec.name.front() == '-' ||
        !std::all_of(spec.name.begin(), spec.name.end(), is_host_char)) {
      return bad(where, "expected a host name, found '" + std::string(rest.substr(0, colon)) + "'");
    }
  }
  if (!after.empty()) {
    HVD_TRY_ASSIGN(spec.slots, parse_slots(after.substr(1), where, spec.name));
  }
  return spec;
}

Result<HostList> parse_host_list(std::string_view text) {
  HostList hosts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string where = "host list, column " + std::to_string(begin + 1);
    HVD_TRY_ASSIGN(HostSpec host, parse_host(text.substr(begin, end - begin), where));
    hosts.push_back(std::move(host));
    if (end == text.size()) {
      return merge_repeated(std::move(hosts));
    }
    begin = end + 1;
  }
}

HostList merge_repeated(HostList hosts) {
  HostList merged;
  for (HostSpec& host : hosts) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&host](const HostSpec& other) {
      return other.name == host.name && other.user == host.user && other.port == host.port;
    });
    if (same == merged.end()) {
      merged.push_back(std::move(host));
    } else {
      same->slots += host.slots;
    }
  }
  return merged;
}

}  // namespace hvd::launch
