// This process's open files: the first three, and the limit (RLIMIT_NOFILE). Most systems allow 1,024 at first and far
// more on request, so that old programs with select(2) keep working. Who needs more asks for it here, and gives what it
// starts the old limit back, since that is inherited.
//
// Thread: any.
#pragma once

#include <cstdint>

#include "runtime/base/result.h"

namespace hvd {

// How many may be open now; 0: unknown.
std::uint64_t open_files_limit();

// How many are open now, one less or more; 0: unknown.
std::uint64_t count_open_files();

// Opens /dev/null in place of those of the standard streams that are closed (`hvdrun ... >&-`), before anything else is
// opened: the next descriptor would get such a number, and what is printed would go into it. For main().
void occupy_standard_streams();

// Sees to it that `needed` may be open. kResource: this user may not have so many.
Result<void> allow_open_files(std::uint64_t needed);

}  // namespace hvd
