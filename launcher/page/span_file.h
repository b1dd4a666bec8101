// SpanFile keeps a job's spans (job_spans.h) on disk: it is written whole each time a step of the job ends. One that
// cannot be written is told once and harms nothing else.
//
// Thread: loop only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/page/job_spans.h"

namespace hvd::launch {

class SpanFile {
 public:
  // `place` without a trace: the spans are of a new one.
  SpanFile(std::string path, SpanPlace place);

  // The events that follow are of this step.
  void begin(std::string name);
  void add(std::string_view event);
  // Returns why the file could not be written, once; empty: nothing.
  std::string failure();

 private:
  const std::string path_;
  const SpanPlace place_;
  std::vector<JobSpanStep> steps_;
  std::string failure_;
  bool has_told_ = false;
};

}  // namespace hvd::launch
