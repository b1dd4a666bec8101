// A chart as PNG, drawn by cairo where the machine has it: the library is loaded when a picture is asked for, so that a
// start of hvdrun costs nothing more and no machine needs it otherwise.
//
// Thread: one.
#pragma once

#include <string>

#include "launcher/report/chart.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Whether this machine can draw one; kNotFound says what is missing and what brings it. Loads the library.
Result<void> check_png();

// The file's bytes, with twice the chart's extent in pixels. Errors: as of check_png; kResource with cairo's words.
Result<std::string> to_png(const Chart& chart);

}  // namespace hvd::launch
