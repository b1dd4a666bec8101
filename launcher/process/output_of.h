// This runs a short program and returns what it prints. It blocks, so it is for places with nothing else to do yet.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct OutputOptions {
  bool has_errors = true;        // what is returned has standard error too
  std::size_t most = 1U << 20U;  // bytes
};

// Returns what it prints. It is an error when the program cannot be started, fails, prints more or is late; then it is
// killed. The error of one that fails has its last line, and is kCancelled where a signal ended it.
Result<std::string> output_of(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                              Deadline deadline, OutputOptions options = {});

}  // namespace hvd::launch
