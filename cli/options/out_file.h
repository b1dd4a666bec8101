// A file that hvdrun writes when a job has ended is checked before the job begins.
#pragma once

#include <string>

#include "runtime/base/result.h"

namespace hvd::cli {

// Refuses a path whose folder takes no files, or that has another ending than `ending`; empty: any. `option` is the
// flag that names it.
Result<void> check_out_file(const std::string& option, const std::string& path, const std::string& ending = "");

}  // namespace hvd::cli
