// A program that goes on when whoever started it has ended: in a session of its own, and nobody's child but init's.
//
// Thread: any, while the process has no other thread (it forks, and goes on in the child).
#pragma once

#include "launcher/process/spawn.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// As spawn(), but the program is not ours to wait for, is not ended with us, and gets what spawn() would inherit of
// signals as a login has it.
Result<void> spawn_detached(SpawnOptions options);

}  // namespace hvd::launch
