// Flux: within `flux batch` and `flux alloc` hvdrun runs in an instance of the user's own, whose brokers are its hosts.
//
// Its hosts are reached by SSH: `flux exec` prints what comes back as text, which a zero byte ends, so that it carries
// no agent's frames.
#include <unistd.h>

#include "launcher/allocations/node_words.h"
#include "launcher/job/host_list.h"
#include "launcher/process/output_of.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(30);

// Returns what the command prints, without the end of its line.
Result<std::string> answer_of(const Allocation& found, const Surroundings& here, std::vector<std::string> words) {
  words.insert(words.begin(), "flux");
  std::string shown;
  for (const std::string& word : words) {
    add_to_list(shown, word, " ");
  }
  auto answer = output_of(words, here.environment, Deadline::after(kAnswerTime));
  if (!answer.ok()) {
    return half_known(found, "'" + shown + "' does not say its hosts: " + answer.error().message());
  }
  return std::string(trimmed(answer.value()));
}

// Gives each host as many slots as it has GPUs, where all have as many.
Result<void> apply_gpus(Allocation& found, const Surroundings& here) {
  HVD_TRY_ASSIGN(const std::string text,
                 answer_of(found, here, {"resource", "list", "-s", "all", "-n", "-o", "{ngpus}"}));
  const auto gpus = parse_number<int>(text, 0, 10'000'000);
  const int nodes = static_cast<int>(found.hosts.size());
  if (gpus && *gpus > 0 && *gpus % nodes == 0) {
    for (HostSpec& host : found.hosts) {
      host.slots = *gpus / nodes;
    }
    found.slots_from = "GPUs of flux resource list";
  }
  return {};
}

}  // namespace

FoundAllocation find_flux(const Surroundings& here) {
  Allocation found;
  found.engine = "Flux";
  if (value_in(here.environment, "FLUX_URI").empty()) {
    return std::optional<Allocation>();
  }
  found.job = value_in(here.environment, "FLUX_JOB_ID");
  if (found.job.empty()) {
    found.job = value_in(here.environment, "FLUX_ENCLOSING_ID");
  }
  if (!value_in(here.environment, "FLUX_TASK_RANK").empty()) {  // a task of flux run
    HVD_TRY_ASSIGN(const std::optional<int> tasks, number_in(found, here, "FLUX_JOB_SIZE"));
    HVD_TRY_ASSIGN(const std::optional<int> nodes, number_in(found, here, "FLUX_JOB_NNODES"));
    if (tasks.value_or(1) > 1 || nodes.value_or(1) > 1) {
      return half_known(
          found, "flux run has started hvdrun as one of its tasks (FLUX_JOB_SIZE=" + std::to_string(tasks.value_or(1)) +
                     ", FLUX_JOB_NNODES=" + std::to_string(nodes.value_or(1)) +
                     "); start it once, by flux batch or flux alloc");
    }
    return std::optional<Allocation>();  // this host alone
  }
  HVD_TRY_ASSIGN(const std::string owner, answer_of(found, here, {"getattr", "security.owner"}));
  if (owner != std::to_string(::geteuid())) {
    return std::optional<Allocation>();  // the system's instance, which is nobody's job
  }
  HVD_TRY_ASSIGN(const std::string names, answer_of(found, here, {"getattr", "hostlist"}));
  auto hosts = parse_host_list(names);
  if (!hosts.ok()) {
    return half_known(found, "'flux getattr hostlist' says '" + names + "': " + hosts.error().message());
  }
  found.hosts = std::move(hosts).value();
  for (HostSpec& host : found.hosts) {
    host.slots = 1;  // several brokers of a host are one host
  }
  found.slots_from = "flux getattr hostlist";
  HVD_TRY(apply_gpus(found, here));
  return complete(std::move(found), here, "'flux getattr hostlist'");
}

}  // namespace hvd::launch
