// What a target aborts by when a property does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "runtime/base/result.h"

namespace hvd::fuzz {

inline void require(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
  }
}

inline void require_error(const Error& error) {
  require(!error.message().empty(), "an error has words");
  require(error.message().find('\0') == std::string::npos, "an error's words are text");
}

}  // namespace hvd::fuzz
