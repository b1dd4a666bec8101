// SilentReporter prints nothing, for work that the user did not ask for. It keeps the failure, for the caller to report
// if the job fails because of it.
//
// Thread: loop only.
#pragma once

#include "launcher/run/job_reporter.h"

namespace hvd::launch {

class SilentReporter final : public JobReporter {
 public:
  // Each host or rank that failed adds a line to `failure`.
  explicit SilentReporter(Lines& failure) : failure_(failure) {}

  Lines on(const JobNews& each) override {
    if (const auto* failure = std::get_if<Failure>(&each)) {
      failure_.insert(failure_.end(), failure->cause.lines.begin(), failure->cause.lines.end());
    } else if (const auto* refused = std::get_if<news::Refused>(&each)) {
      failure_.push_back(refused->why.message());
    }
    return {};
  }
  [[nodiscard]] std::string status() const override { return ""; }

 private:
  Lines& failure_;
};

}  // namespace hvd::launch
