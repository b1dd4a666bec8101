#include "launcher/allocations/node_words.h"

#include <algorithm>

#include "launcher/job/host_list.h"
#include "launcher/job/text_file.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{16} << 20U;
constexpr std::size_t kShownHosts = 4;

bool is_host_name(std::string_view name) {
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._:").find(c) != std::string_view::npos;
  });
}

// "n1.cluster" and "n1" are one machine; "n1.a" and "n1.b" are two.
bool is_same_host(std::string_view a, std::string_view b) {
  const auto first = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const bool is_short = a.find('.') == std::string_view::npos || b.find('.') == std::string_view::npos;
  return a == b || (is_short && first(a) == first(b));
}

}  // namespace

Error half_known(const Allocation& found, const std::string& what) {
  return Error(Code::kInvalid,
               "this is " + (found.job.empty() ? "a job of " + found.engine : found.engine + " job " + found.job) +
                   ", but " + what + "; -H names hosts, and --engine none leaves " + found.engine + " aside");
}

std::vector<std::string> words_between(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  std::size_t at = text.find_first_not_of(separators);
  while (at != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(separators, end);
  }
  return words;
}

Result<std::vector<std::string>> lines_of(const Allocation& found, const std::string& variable,
                                          const std::string& file) {
  const auto text = read_text_file(file, variable, kMostFileBytes);
  if (!text.ok()) {
    return half_known(found, text.error().message());
  }
  std::vector<std::string> lines = words_between(text.value(), "\r\n");
  if (lines.empty()) {
    return half_known(found, variable + " names a file without a line: " + file);
  }
  return lines;
}

Result<HostList> hosts_named(const Allocation& found, const std::string& variable,
                             const std::vector<std::string>& names) {
  HostList hosts;
  for (const std::string& name : names) {
    if (!is_host_name(name)) {
      return half_known(found, variable + " has '" + shown_text(name) + "' where a host's name is expected");
    }
    hosts.push_back({name, "", 0, 1});
  }
  if (hosts.empty()) {
    return half_known(found, variable + " names no host");
  }
  return merge_repeated(std::move(hosts));
}

Result<std::optional<int>> number_in(const Allocation& found, const Surroundings& here, const std::string& variable) {
  const std::string text = value_in(here.environment, variable);
  if (text.empty()) {
    return std::optional<int>();
  }
  const auto number = parse_number<int>(text, 0, 1'000'000);
  return number ? Result<std::optional<int>>(number)
                : half_known(found, variable + " is '" + shown_text(text) + "', expected a number");
}

Result<void> check_count(const Allocation& found, const Surroundings& here, const std::string& variable, int count,
                         const std::string& counted_in) {
  HVD_TRY_ASSIGN(const std::optional<int> said, number_in(found, here, variable));
  if (said && *said != count) {
    return half_known(
        found, variable + " says " + std::to_string(*said) + " where " + counted_in + " has " + std::to_string(count));
  }
  return {};
}

int slots_of(const HostList& hosts) {
  int slots = 0;
  for (const HostSpec& host : hosts) {
    slots += host.slots;
  }
  return slots;
}

bool name_own_host(HostList& hosts, const Surroundings& here) {
  bool is_among = false;
  for (HostSpec& host : hosts) {
    const bool is_this = std::any_of(here.own_names.begin(), here.own_names.end(),
                                     [&host](const std::string& own) { return is_same_host(own, host.name); });
    if (is_this && host.user.empty() && host.port == 0) {  // else it is what an SSH server here leads to
      host.name = here.own_names.front();
      is_among = true;
    }
  }
  hosts = merge_repeated(std::move(hosts));
  return is_among;
}

FoundAllocation complete(Allocation found, const Surroundings& here, const std::string& variable) {
  if (!name_own_host(found.hosts, here)) {
    std::string names;
    for (std::size_t index = 0; index < std::min(kShownHosts, found.hosts.size()); ++index) {
      add_to_list(names, found.hosts[index].name);
    }
    return half_known(found, variable + " names " + names + (found.hosts.size() > kShownHosts ? ", ..." : "") +
                                 " and not this host, " + here.own_names.front());
  }
  const bool is_said =
      std::any_of(found.hosts.begin(), found.hosts.end(), [](const HostSpec& host) { return host.slots > 1; });
  // On this machine alone the user's number counts, as without an engine.
  if (here.size > 0 && (!is_said || found.hosts.size() == 1)) {
    spread_slots(here.size, found.hosts);
    found.slots_from = "-np";
  }
  return std::optional(std::move(found));
}

Result<void> check_first(const Allocation& found, const Surroundings& here, const std::string& index) {
  HVD_TRY_ASSIGN(const std::optional<int> own, number_in(found, here, index));
  if (!own) {
    return half_known(found, index + ", which tells its nodes apart, is not set");
  }
  return *own == 0 ? Result<void>()
                   : half_known(found, index + " is " + std::to_string(*own) +
                                           ": run hvdrun on node 0 alone, and it starts the ranks on all");
}

std::string starter(const Surroundings& here, const std::string& program, const std::string& words,
                    const std::vector<std::string>& folders) {
  const std::string path = value_in(here.environment, "PATH");
  if (find_program(program, path, "").ok()) {
    return program + words;
  }
  for (const std::string& folder : folders) {
    const auto found = folder.empty() ? Result<std::string>(Error(Code::kNotFound, "no folder"))
                                      : find_program(folder + "/" + program, path, "");
    if (found.ok() && folder.find_first_of(" \t\n'\"\\{}") == std::string::npos) {
      return found.value() + words;
    }
  }
  return "";
}

}  // namespace hvd::launch
