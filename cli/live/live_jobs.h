// Finds the running job that a command means (hvdrun top, hvdrun stacks).
#pragma once

#include <string>

#include "launcher/live/live_client.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// `reference`: the job's id, the beginning of it, its name, hvdrun's process number, or the number of a submitted job;
// empty: the only one that runs here. An error is for the user. Blocks while jobs are asked who they are.
Result<launch::FoundJob> find_running_job(const std::string& reference);

}  // namespace hvd::cli
