// IBM Spectrum LSF. Within a job blaunch reaches its hosts as rsh would.
#include <algorithm>

#include "launcher/allocations/node_words.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Reads "n1 4 n2 4".
Result<HostList> counted_hosts(const Allocation& found, const std::string& text) {
  const std::vector<std::string> words = words_between(text, " ");
  std::vector<std::string> names;
  for (std::size_t at = 0; at < words.size(); at += 2) {
    const auto count = at + 1 < words.size() ? parse_number<int>(words[at + 1], 1, 100'000) : std::nullopt;
    if (!count) {
      return half_known(found, "LSB_MCPU_HOSTS is '" + text + "', expected hosts and counts as in 'n1 4 n2 4'");
    }
    names.insert(names.end(), static_cast<std::size_t>(*count), words[at]);
  }
  return hosts_named(found, "LSB_MCPU_HOSTS", names);
}

// True where jsrun starts processes: hvdrun then runs on a launch host, which the list names first with one slot. No
// rank belongs there.
bool has_launch_host(const Allocation& found, const Surroundings& here) {
  const bool is_jsrun =
      !starter(here, "jsrun", "", {}).empty() || !value_in(here.environment, "CSM_ALLOCATION_ID").empty();
  return is_jsrun && found.hosts.size() > 1 && found.hosts.front().slots == 1 &&
         std::all_of(found.hosts.begin() + 1, found.hosts.end(), [](const HostSpec& host) { return host.slots > 1; });
}

}  // namespace

FoundAllocation find_lsf(const Surroundings& here) {
  Allocation found;
  found.engine = "LSF";
  found.job = value_in(here.environment, "LSB_JOBID");
  if (found.job.empty()) {
    return std::optional<Allocation>();
  }
  const std::string file = value_in(here.environment, "LSB_DJOB_HOSTFILE");
  const std::string counts = value_in(here.environment, "LSB_MCPU_HOSTS");
  if (file.empty() && counts.empty()) {
    return half_known(found, "neither LSB_DJOB_HOSTFILE nor LSB_MCPU_HOSTS, which name its hosts, is set");
  }
  if (!file.empty()) {
    found.slots_from = "LSB_DJOB_HOSTFILE";
    HVD_TRY_ASSIGN(const std::vector<std::string> lines, lines_of(found, found.slots_from, file));
    HVD_TRY_ASSIGN(found.hosts, hosts_named(found, found.slots_from, lines));
  }
  if (!counts.empty()) {
    HVD_TRY_ASSIGN(HostList said, counted_hosts(found, counts));
    if (!file.empty() && (said.size() != found.hosts.size() || slots_of(said) != slots_of(found.hosts))) {
      return half_known(found, "LSB_DJOB_HOSTFILE has " + counted(found.hosts.size(), "host") + " and " +
                                   counted(static_cast<std::size_t>(slots_of(found.hosts)), "slot") +
                                   " where LSB_MCPU_HOSTS has " + std::to_string(said.size()) + " and " +
                                   std::to_string(slots_of(said)));
    }
    if (file.empty()) {
      found.hosts = std::move(said);
      found.slots_from = "LSB_MCPU_HOSTS";
    }
  }
  const std::string variable = found.slots_from;
  const bool drops_first = has_launch_host(found, here);
  HVD_TRY_ASSIGN(std::optional<Allocation> all, complete(found, here, variable));
  if (drops_first) {
    found.hosts.erase(found.hosts.begin());
    all->hosts = std::move(found.hosts);
    all->slots_from = variable;
  }
  all->rsh = starter(here, "blaunch", " {host}", {value_in(here.environment, "LSF_BINDIR")});
  return all;
}

}  // namespace hvd::launch
