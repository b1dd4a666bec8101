// Silence: a reporter of a job that says nothing, for tests of what others make of its news.
#pragma once

#include <string>

#include "launcher/run/job_reporter.h"

namespace hvd::test {

class Silence final : public launch::JobReporter {
 public:
  launch::Lines on(const launch::JobNews& /*news*/) override { return {}; }
  [[nodiscard]] std::string status() const override { return ""; }
};

}  // namespace hvd::test
