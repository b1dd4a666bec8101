// hvdrun's own diagnostics (--verbose), through spdlog.
#pragma once

#include <memory>

#include "runtime/base/log.h"

namespace hvd::launch {

// Writes "hvdrun: [12:00:00.123] message" to standard error; only messages of `lowest` and above.
std::unique_ptr<Log> make_spdlog_log(LogLevel lowest);

}  // namespace hvd::launch
