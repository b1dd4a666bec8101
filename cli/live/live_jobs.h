// Finds the running job that a command means (hvdrun top, hvdrun stacks).
#pragma once

#include <optional>
#include <string>

#include "launcher/live/live_client.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// `reference`: the job's id, the beginning of it, its name, hvdrun's process number, or the number of a submitted job;
// empty: the only one that runs here. An error is for the user. Blocks while jobs are asked who they are.
Result<launch::FoundJob> find_running_job(const std::string& reference);

// Waits until a job that answers no more answers again: its steps, and each time that it is started anew, have a socket
// of their own. Returns nothing once its hvdrun, as open_process() has opened it, has ended. kTimeout: neither came
// within `patience`, as where nobody reads the last of the job's output. Blocks meanwhile.
Result<std::optional<launch::FoundJob>> find_again(const launch::FoundJob& job, const Fd& hvdrun, Duration patience);

}  // namespace hvd::cli
