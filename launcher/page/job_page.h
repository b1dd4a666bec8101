// job_page() draws the history of a job as one HTML file, which needs no other file and no network, and runs no script.
// It is readable on a phone, in light and dark, and says in words all that its colours say.
//
// Pure. Thread: any.
#pragma once

#include <string>

#include "launcher/page/job_curves.h"
#include "launcher/page/job_history.h"

namespace hvd::launch {

// Returns a whole document in UTF-8. Texts of the history are shown as they are, and are never markup. A job of 1,000
// ranks takes about 300 KB.
std::string job_page(const JobHistory& history, const JobCurves& curves = JobCurves());

}  // namespace hvd::launch
