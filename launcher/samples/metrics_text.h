// A job's metrics as text: Prometheus's exposition format, or OpenMetrics, which ends in a line "# EOF" and names a
// counter's family without "_total". Pure.
#pragma once

#include <string>

#include "launcher/samples/job_picture.h"

namespace hvd::launch {

enum class MetricsForm : std::uint8_t { kPrometheus, kOpenMetrics };

std::string metrics_text(const JobPicture& view, MetricsForm form);

}  // namespace hvd::launch
