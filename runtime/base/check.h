// HVD_CHECK aborts with file, line and expression when one of our own invariants is broken. It is never for anything
// that came from outside (input, peers, the system): those are Errors.
#pragma once

namespace hvd {
[[noreturn]] void check_failed(const char* expression, const char* file, int line) noexcept;
}  // namespace hvd

#define HVD_CHECK(condition)                               \
  do {                                                     \
    if (!(condition)) {                                    \
      ::hvd::check_failed(#condition, __FILE__, __LINE__); \
    }                                                      \
  } while (false)
