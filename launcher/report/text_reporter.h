// TextReporter prints a job as text, each line beginning with "hvdrun: ". A job that goes well gets one line at its
// end; further details are in --verbose's diagnostics.
//
// Thread: loop only.
#pragma once

#include "launcher/placement/placement.h"
#include "launcher/report/start_progress.h"
#include "launcher/run/job_reporter.h"

namespace hvd::launch {

struct TextOptions {
  bool quiet = false;     // report only what went wrong
  bool progress = false;  // a terminal shows status(); elsewhere lines report a slow start
};

class TextReporter final : public JobReporter {
 public:
  // `placement` must outlive it.
  TextReporter(const Placement& placement, TextOptions options)
      : placement_(placement), options_(options), start_(placement) {}

  Lines on(const JobNews& news) override;
  [[nodiscard]] std::string status() const override;

 private:
  Lines lines_of(const news::NodeProgress& progress);
  Lines lines_of(const news::NodeReady& ready);
  Lines lines_of(const news::SlowStart& slow);
  Lines lines_of(const news::AllReady& all);
  Lines lines_of(const news::NodeAway& gone);
  Lines lines_of(const news::NodeBack& back);
  Lines lines_of(const news::NodeLost& lost);
  Lines lines_of(const news::RankRestarted& restarted);
  Lines lines_of(const news::AllRestarted& restarted);
  Lines lines_of(const news::GenerationFormed& formed);
  Lines lines_of(const news::NodeJoining& joining);
  Lines lines_of(const Note& note);
  Lines lines_of(const news::EngineLine& said);
  Lines lines_of(const news::Failing& failing);
  Lines lines_of(const Failure& failure);
  Lines lines_of(const news::Refused& refused);
  Lines lines_of(const news::Ended& ended);
  // All other news is only for programs.
  template <typename Other>
  Lines lines_of(const Other& /*news*/) {
    return {};
  }

  const Placement& placement_;
  const TextOptions options_;
  StartProgress start_;
  std::string told_;  // the start's progress, as last printed on a line
  std::string why_;   // the exception of the rank that failed first; the last line, which `wait` repeats, names it too
};

}  // namespace hvd::launch
