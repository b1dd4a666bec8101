// RestartReporter reports one start of a job that may be started anew (state/job_restarts.h). It passes on what another
// reporter prints, asks at the end of the start whether that was the end of the job, and tells of a new size.
//
// Thread: loop only.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"
#include "launcher/state/job_restarts.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

// StartMemory is what one start of a job has learned for the next.
struct StartMemory {
  JobRestarts restarts;
  TimePoint began;             // of the first start
  int last_size = 0;           // of the last start; 0: there was none
  std::set<std::string> said;  // notes of earlier starts; each connects to the hosts, and gets the same ones about them
};

class RestartReporter final : public JobReporter {
 public:
  // All of them outlive it.
  RestartReporter(std::unique_ptr<JobReporter> inner, const Placement& placement, const Clock& clock,
                  StartMemory& memory)
      : inner_(std::move(inner)), placement_(placement), clock_(clock), memory_(memory) {}

  Lines on(const JobNews& news) override;
  [[nodiscard]] std::string status() const override { return inner_->status(); }

 private:
  Lines lines_of(const news::Begun& begun);
  Lines lines_of(const Note& note);
  Lines lines_of(const news::Ended& ended);
  template <typename Other>
  Lines lines_of(const Other& news) {
    return inner_->on(news);
  }

  const std::unique_ptr<JobReporter> inner_;
  const Placement& placement_;
  const Clock& clock_;
  StartMemory& memory_;
  std::set<std::string> said_;  // notes of this start
};

}  // namespace hvd::launch
