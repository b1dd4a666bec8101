#include "launcher/steps/job_hosts.h"

#include <string>
#include <utility>

#include "launcher/offers/discovery_script.h"
#include "launcher/offers/equal_slots.h"
#include "launcher/offers/first_hosts.h"
#include "launcher/offers/watched_hostfile.h"
#include "launcher/steps/step_log.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

std::unique_ptr<HostSource> host_source_of(EventLoop& loop, const JobSpec& job) {
  const HostDiscovery& discovery = job.discovery;
  std::unique_ptr<HostSource> source;
  if (!discovery.script.empty()) {
    source = std::make_unique<DiscoveryScript>(
        loop,
        DiscoveryScript::Options{discovery.script, job.environment, job.cwd, discovery.slots, discovery.interval});
  } else if (!discovery.hostfile.empty()) {
    source = std::make_unique<WatchedHostfile>(loop, discovery.hostfile, discovery.slots, discovery.interval);
  }
  if (source != nullptr && discovery.is_slots_of_all) {
    source = std::make_unique<EqualSlots>(std::move(source), discovery.slots);
  }
  return source;
}

Result<HostList> await_hosts_of(const JobSpec& job) {
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  const std::unique_ptr<HostSource> source = host_source_of(*loop, job);
  const int least = job.size > 0 ? job.size : job.least_ranks;
  return await_first_hosts(*loop, *source, least, job.elastic_timeout,
                           [&job](const std::string& line) { say_unless_quiet(job, line); });
}

}  // namespace hvd::launch
