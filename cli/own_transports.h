// Our own ways to reach hosts, as a job's settings have them.
#pragma once

#include <memory>

#include "launcher/job/job_spec.h"
#include "launcher/transport/transport.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/log.h"

namespace hvd::cli {

struct OwnTransports {
  std::unique_ptr<launch::Transport> local;
  std::unique_ptr<launch::Transport> ssh;
  std::unique_ptr<launch::Transport> rsh;  // null: there is no rsh command
};

// Loop and log outlive them. An error is the user's: an rsh command that is not there.
Result<OwnTransports> make_own_transports(EventLoop& loop, const launch::JobSpec& job, Log& log);

}  // namespace hvd::cli
