// A detached program goes on when the process that started it has ended: it has a session of its own, and init as
// parent.
//
// Thread: any, while the process has no other thread (it forks, and goes on in the child).
#pragma once

#include "launcher/process/spawn.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Works as spawn(), but we do not wait for the program, and it does not end with us. Its signals are set as for a
// login, where spawn() would pass ours on.
Result<void> spawn_detached(SpawnOptions options);

}  // namespace hvd::launch
