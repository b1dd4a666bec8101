// The properties that several targets check, and the end of one that does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

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

// A message of the wire: what was read from `body` is written as it was, or the error has words.
template <typename Message>
void one_message(std::string_view body) {
  if (const auto message = Message::decode(body); message.ok()) {
    require(message.value().encode() == body, "a message is written as it was read");
  } else {
    require_error(message.error());
  }
}

}  // namespace hvd::fuzz
