// These functions say what the ranks of a job file's job run, from what their nodes reported of themselves.
#pragma once

#include <vector>

#include "launcher/jobfile/job_run.h"
#include "launcher/run/start_plan.h"
#include "launcher/sessions/node_addresses.h"

namespace hvd::cli {

std::vector<launch::JobNodeFacts> facts_of(const std::vector<launch::NodeView>& views);
// `view` is that of the ranks, whose agents write the texts that they run.
std::vector<launch::RankProgram> programs_of(const launch::JobRun& run, const std::vector<launch::JobNodeFacts>& facts,
                                             const launch::JobView& view);
// Returns a JobTexts with the folder in which the rank's agent writes its texts.
launch::JobTexts texts_at(const launch::JobView& view, int rank);
// Returns the program by which bash runs `script`, with those of the texts that were added after the first `known`.
launch::RankProgram bash_program(const std::string& script, launch::JobTexts& texts, std::size_t known,
                                 launch::EnvList env);

}  // namespace hvd::cli
