// These functions find the hosts of a job whose hosts come and go, by what --host-discovery-script or a hostfile that
// may change says.
#pragma once

#include <memory>

#include "launcher/job/job_spec.h"
#include "launcher/offers/host_source.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// Returns what says which hosts the job has; null: its hosts stay the same.
std::unique_ptr<HostSource> host_source_of(EventLoop& loop, const JobSpec& job);

// Returns the hosts that such a job begins with. Signals end this process while it waits for them.
Result<HostList> await_hosts_of(const JobSpec& job);

}  // namespace hvd::launch
