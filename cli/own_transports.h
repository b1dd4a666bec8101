// OwnTransports are hvdrun's own ways to reach hosts, made from a job's settings.
#pragma once

#include <memory>

#include "launcher/job/job_spec.h"
#include "launcher/transport/transport.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::cli {

struct OwnTransports {
  std::unique_ptr<launch::Transport> local;
  std::unique_ptr<launch::Transport> ssh;
  std::unique_ptr<launch::Transport> rsh;  // null: there is no rsh command
};

// The loop and the log outlive them. An error is the user's: the rsh command does not exist.
Result<OwnTransports> make_own_transports(EventLoop& loop, const launch::JobSpec& job, Log& log);

}  // namespace hvd::cli
