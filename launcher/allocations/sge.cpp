// Sun Grid Engine and its descendants, in a parallel environment. Within a job `qrsh -inherit` starts a program on one
// of its hosts, with our standard input and output, where the environment has control_slaves.
#include <algorithm>

#include "launcher/allocations/node_words.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {

FoundAllocation find_sge(const Surroundings& here) {
  Allocation found;
  found.engine = "SGE";
  found.job = value_in(here.environment, "JOB_ID");
  if (found.job.empty() || value_in(here.environment, "SGE_TASK_ID").empty()) {
    return std::optional<Allocation>();
  }
  found.slots_from = "PE_HOSTFILE";
  const std::string file = value_in(here.environment, "PE_HOSTFILE");
  if (file.empty()) {
    HVD_TRY_ASSIGN(const std::optional<int> slots, number_in(found, here, "NSLOTS"));
    if (slots.value_or(1) > 1) {
      return half_known(found,
                        "PE_HOSTFILE, which names its hosts, is not set where NSLOTS says " + std::to_string(*slots));
    }
    return std::optional<Allocation>();  // no parallel job: this host alone
  }
  HVD_TRY_ASSIGN(const std::vector<std::string> lines, lines_of(found, "PE_HOSTFILE", file));
  std::vector<std::string> names;
  for (const std::string& line : lines) {
    const std::vector<std::string> words = words_between(line, " \t");  // host, slots, queue, cores
    const auto slots = words.size() > 1 ? parse_number<int>(words[1], 1, 100'000) : std::nullopt;
    if (!slots) {
      return half_known(found, "PE_HOSTFILE has the line '" + line + "', expected a host and its slots");
    }
    names.insert(names.end(), static_cast<std::size_t>(*slots), words.front());
  }
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, "PE_HOSTFILE", names));
  HVD_TRY(check_count(found, here, "NSLOTS", slots_of(found.hosts), "PE_HOSTFILE"));
  if (found.hosts.size() == lines.size()) {  // else a host has several queues, which NHOSTS may count or not
    HVD_TRY(check_count(found, here, "NHOSTS", static_cast<int>(found.hosts.size()), "PE_HOSTFILE"));
  }
  const std::string root = value_in(here.environment, "SGE_ROOT");
  found.rsh = starter(here, "qrsh", " -inherit -V {host}",
                      {value_in(here.environment, "SGE_BINARY_PATH"),
                       root.empty() ? "" : root + "/bin/" + value_in(here.environment, "ARC")});
  return complete(std::move(found), here, "PE_HOSTFILE");
}

}  // namespace hvd::launch
