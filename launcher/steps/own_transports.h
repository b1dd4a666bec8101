// OwnTransports are hvdrun's own ways to reach hosts, made from a job's settings.
#pragma once

#include <memory>

#include "launcher/job/job_spec.h"
#include "launcher/transport/transport.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct OwnTransports {
  std::unique_ptr<Transport> local;
  std::unique_ptr<Transport> ssh;
  std::unique_ptr<Transport> rsh;  // null: there is no rsh command
};

// The loop and the log outlive them. An error is the user's: the rsh command does not exist.
Result<OwnTransports> make_own_transports(EventLoop& loop, const JobSpec& job, Log& log);

}  // namespace hvd::launch
