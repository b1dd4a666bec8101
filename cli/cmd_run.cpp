#include "cli/commands.h"
#include "cli/options/job_settings.h"
#include "launcher/process/own_process.h"
#include "launcher/steps/file_job.h"
#include "launcher/steps/whole_job.h"

namespace hvd::cli {

Result<int> run_job(const CliOptions& options) {
  if (options.parent > 0) {
    HVD_TRY(end_with_parent(options.parent));
  }
  return options.file ? launch::run_file_job({options.job, *options.file, options.notices, state_root()}, nullptr)
                      : launch::run_whole_job(options.job, options.notices);
}

}  // namespace hvd::cli
