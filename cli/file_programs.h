// What the ranks of a job file's job run, from what their nodes said of themselves.
#pragma once

#include <vector>

#include "launcher/jobfile/job_run.h"
#include "launcher/run/node_addresses.h"
#include "launcher/run/start_plan.h"

namespace hvd::cli {

std::vector<launch::JobNodeFacts> facts_of(const std::vector<launch::NodeView>& views);
std::vector<launch::RankProgram> programs_of(const launch::JobRun& run, const std::vector<launch::JobNodeFacts>& facts);

}  // namespace hvd::cli
