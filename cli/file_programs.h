// What the ranks of a job file's job run, from what their nodes said of themselves.
#pragma once

#include <vector>

#include "launcher/jobfile/job_run.h"
#include "launcher/run/node_addresses.h"
#include "launcher/run/start_plan.h"

namespace hvd::cli {

std::vector<launch::JobNodeFacts> facts_of(const std::vector<launch::NodeView>& views);
// `view`: of the ranks, whose agents write what they run.
std::vector<launch::RankProgram> programs_of(const launch::JobRun& run, const std::vector<launch::JobNodeFacts>& facts,
                                             const launch::JobView& view);
// Where the rank's agent does.
launch::JobTexts texts_at(const launch::JobView& view, int rank);
// What bash runs there, with the texts that came since there were `known` of them.
launch::RankProgram bash_program(const std::string& script, launch::JobTexts& texts, std::size_t known,
                                 launch::EnvList env);

}  // namespace hvd::cli
