#include "cli/commands.h"
#include "launcher/steps/whole_job.h"

namespace hvd::cli {

Result<int> run_job(const CliOptions& options) {
  return launch::run_whole_job(options.job, options.notices);
}

}  // namespace hvd::cli
