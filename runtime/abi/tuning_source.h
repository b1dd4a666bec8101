// Reads a job's Tuning from HVD_TUNING on rank 0, whose choices all ranks use.
#pragma once

#include "runtime/abi/config.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

namespace hvd {

// Reads the table that config.tuning names or contains into config.engine; config.map is complete by now. It does
// nothing on ranks other than 0 and in a job of one rank. A table for another placement is ignored with a warning.
// kInvalid names file and line; kNotFound means that the file does not exist. Thread: joining only.
Result<void> apply_tuning(Config& config, Log& log);

}  // namespace hvd
