// These functions say what the ranks of a job file's job run, from what their nodes reported of themselves.
#pragma once

#include <string>
#include <vector>

#include "launcher/jobfile/job_run.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/node_addresses.h"

namespace hvd::launch {

// The nodes' addresses are on these interfaces, where they are named.
std::vector<JobNodeFacts> facts_of(const std::vector<NodeView>& views, const std::vector<std::string>& interfaces);
// `view` is that of the ranks, whose agents write the texts that they run.
std::vector<RankProgram> programs_of(const JobRun& run, const std::vector<JobNodeFacts>& facts, const JobView& view);
// Returns a JobTexts with the folder in which the rank's agent writes its texts.
JobTexts texts_at(const JobView& view, int rank);
// Returns the program by which bash runs `script`, with those of the texts that were added after the first `known`.
RankProgram bash_program(const std::string& script, JobTexts& texts, std::size_t known, EnvList env);

}  // namespace hvd::launch
