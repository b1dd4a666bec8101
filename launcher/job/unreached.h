// Unreached says which hosts other than this machine a job could not reach, or has lost. Value types.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

struct UnreachedHost {
  std::string name;
  std::string why;
  Code code = Code::kUnreachable;
};

struct Unreached {
  std::vector<UnreachedHost> hosts;
  // The job has reached at least one host: its keys, --rsh and ssh configuration are not what is wrong.
  bool has_reached_one = false;
};

}  // namespace hvd::launch
