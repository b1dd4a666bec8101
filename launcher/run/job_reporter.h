// JobReporter turns the news of a job into the lines that hvdrun itself prints. JobRunner passes it each piece of news
// and prints the lines that it returns, so that this layer decides only when something is reported. launcher/report
// holds the reporter that writes text for people and the one that writes JSON for programs.
//
// Thread: loop only. Lines are complete and without newlines; an empty list means that nothing is printed.
#pragma once

#include <string>
#include <vector>

#include "launcher/run/job_news.h"

namespace hvd::launch {

using Lines = std::vector<std::string>;

class JobReporter {
 public:
  virtual ~JobReporter() = default;
  virtual Lines on(const JobNews& news) = 0;
  // Returns what the start is waiting for, as a row that a terminal shows until it changes; empty: nothing.
  [[nodiscard]] virtual std::string status() const = 0;

 protected:
  JobReporter() = default;
  JobReporter(const JobReporter&) = default;
  JobReporter& operator=(const JobReporter&) = default;
};

}  // namespace hvd::launch
