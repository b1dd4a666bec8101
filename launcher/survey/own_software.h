// These are the answers of programs and file systems of this node. They may take long, or for ever if a file server is
// dead.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

// `environment` is what the ranks of the job would have here, and `own` is the agent's own ("NAME=value" each). The
// programs that the request's argv names are looked for in PATH, and the first that is found is reported. It blocks,
// and changes into the job's directory, so it needs a process of its own (launcher/survey/errand.h).
SoftwareSurvey own_software(const SurveyRequest& request, const std::vector<std::string>& environment,
                            const std::vector<std::string>& own);

// Reads nvidia-smi's name, memory.total and driver_version, as CSV without heading and units. Pure.
void read_gpu_answer(std::string_view output, SoftwareSurvey& software);
// Returns "Open MPI 4.1.4" from the output of `mpirun --version`; another program's first line as it is. Pure.
std::string mpirun_version(std::string_view output);

}  // namespace hvd::launch
