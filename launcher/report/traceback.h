// find_traceback() finds the end of a Python traceback in the last lines of a rank's standard error. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::launch {

struct Traceback {
  std::string exception;  // "ZeroDivisionError: division by zero"
  std::string frame;      // where it was raised: "train.py:12 in step"
};

// Returns the last one: of several, it is the one that ended the program. Its beginning may be cut off.
std::optional<Traceback> find_traceback(const std::vector<std::string>& lines);

}  // namespace hvd::launch
