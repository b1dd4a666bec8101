// What programs and file systems of this node tell: it may take long, or for ever where a file server is dead.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

// With `environment` as the ranks of the job would have it here, and `own` the agent's own ("NAME=value" each). The
// programs that the request's argv names are looked for in its PATH, and the first that is found is told of. It waits,
// and goes to the job's directory: for a process that does nothing else (launcher/survey/errand.h).
SoftwareSurvey own_software(const SurveyRequest& request, const std::vector<std::string>& environment,
                            const std::vector<std::string>& own);

// The lines "hvdrun.KEY VALUE" that the questioned Python printed, between whatever else it printed. Pure.
void read_python_answer(std::string_view output, SoftwareSurvey& software);
// What nvidia-smi prints for name, memory.total and driver_version, as CSV without heading and units. Pure.
void read_gpu_answer(std::string_view output, SoftwareSurvey& software);
// "Open MPI 4.1.4" of what `mpirun --version` prints; another's first line as it is. Pure.
std::string mpirun_version(std::string_view output);

}  // namespace hvd::launch
