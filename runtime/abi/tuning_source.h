// Where a job's Tuning comes from: HVD_TUNING on rank 0.
#pragma once

#include "runtime/abi/config.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

namespace hvd {

// Reads the table that config.tuning names or is (its map is known already) into config.engine. On ranks other than 0,
// and where there is no other rank, it does nothing. A table of another placement is ignored, with a warning. kInvalid
// names file and line, kNotFound a file that is not there. Thread: joining only.
Result<void> apply_tuning(Config& config, Log& log);

}  // namespace hvd
