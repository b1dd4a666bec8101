// This process's open files: the standard streams, and the limit (RLIMIT_NOFILE). Most systems allow 1,024 at first and
// far more on request, so that old programs with select(2) keep working. A program that needs more raises the limit
// here, and restores the old one for its children, which inherit it.
//
// Thread: any.
#pragma once

#include <cstdint>

#include "runtime/base/result.h"

namespace hvd {

// The number that may be open now; 0: unknown.
std::uint64_t open_files_limit();

// The number that is open now, give or take one; 0: unknown.
std::uint64_t count_open_files();

// Opens /dev/null in place of closed standard streams (`hvdrun ... >&-`). Otherwise the next descriptor would get such
// a number, and printed text would go into it. For main(), before anything else is opened.
void occupy_standard_streams();

// Ensures that `needed` files may be open. kResource: this user may not have so many.
Result<void> allow_open_files(std::uint64_t needed);

}  // namespace hvd
