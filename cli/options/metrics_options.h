// metrics_place_of() reads the options that say where a job's metrics can be asked for.
#pragma once

#include "cli/options/flags.h"
#include "launcher/job/metrics_place.h"
#include "runtime/base/result.h"

namespace hvd::cli {

// Returns a place that is off where none is given. An error is the user's.
Result<launch::MetricsPlace> metrics_place_of(const Flags& flags);

}  // namespace hvd::cli
