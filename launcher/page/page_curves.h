// page_curves() draws what the hosts of a job used over time, as a section of the job's page (job_page.h). Pure.
#pragma once

#include <string>

#include "launcher/page/job_curves.h"

namespace hvd::launch {

// `length`: of the job, in seconds; the lines use the same axis of time as the ranks' bars. Empty where too little is
// known for a line.
std::string page_curves(const JobCurves& curves, double length);

}  // namespace hvd::launch
