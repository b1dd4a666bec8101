// make_spdlog_log() makes the log of hvdrun's own diagnostics (--verbose), through spdlog.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "runtime/base/log.h"

namespace hvd::launch {

// Passes "hvdrun: [12:00:00.123] message" to `write`, in the thread that logs; only messages of `lowest` and above.
std::unique_ptr<Log> make_spdlog_log(LogLevel lowest, std::function<void(std::string_view line)> write);

}  // namespace hvd::launch
