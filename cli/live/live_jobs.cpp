#include "cli/live/live_jobs.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/options/job_settings.h"
#include "cli/service_place.h"
#include "launcher/service/job_record.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

// A submitted job is also known by its number, which only its record has.
std::string uuid_of_number(const std::string& reference) {
  if (!is_job_number(reference)) {
    return "";
  }
  auto place = ServicePlace::open();
  const auto job = place.ok() ? place.value().job(reference) : Result<JobRecord>(place.error());
  return job.ok() ? job.value().uuid : "";
}

}  // namespace

Result<FoundJob> find_running_job(const std::string& reference) {
  HVD_TRY_ASSIGN(const std::vector<FoundJob> jobs, running_jobs(own_environment()));
  const std::string uuid = uuid_of_number(reference);
  const bool is_submitted = !uuid.empty() && std::any_of(jobs.begin(), jobs.end(), [&uuid](const FoundJob& found) {
    return found.job.uuid == uuid;
  });
  return choose_job(jobs, is_submitted ? uuid : reference);
}

Result<std::optional<FoundJob>> find_again(const FoundJob& job, const Fd& hvdrun, Duration patience) {
  constexpr int kLookEveryMs = 200;
  for (const Deadline deadline = Deadline::after(patience);;) {
    pollfd ended{hvdrun.get(), POLLIN, 0};
    if (::poll(&ended, 1, kLookEveryMs) > 0) {
      return std::optional<FoundJob>();
    }
    HVD_TRY_ASSIGN(const std::vector<FoundJob> jobs, running_jobs(own_environment()));
    const auto found =
        std::find_if(jobs.begin(), jobs.end(), [&job](const FoundJob& other) { return other.job.pid == job.job.pid; });
    if (found != jobs.end()) {
      return std::optional(*found);
    }
    if (deadline.has_passed()) {
      return Error(Code::kTimeout, "job " + job.job.id + " has not answered for " + duration_text(patience) +
                                       ", and its hvdrun (pid " + std::to_string(job.job.pid) +
                                       ") still runs: it waits for who reads the job's output, cleans up after it, or "
                                       "waits for hosts to start " +
                                       "the job anew");
    }
  }
}

}  // namespace hvd::cli
