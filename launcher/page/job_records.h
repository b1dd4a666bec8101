// JobRecords is what a job leaves behind for people and other programs beside its output, where its settings ask for
// it: its page (--report) and its spans (--spans). All steps and starts of a job are on one.
//
// Thread: loop only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/job/job_spec.h"
#include "launcher/page/page_file.h"
#include "launcher/page/span_file.h"

namespace hvd::launch {

class JobRecords {
 public:
  // `is_page_private`: nobody but the user may read the page.
  JobRecords(const JobSpec& job, const Clock& clock, bool is_page_private = false);

  [[nodiscard]] bool is_any() const { return page_.has_value() || spans_.has_value(); }
  [[nodiscard]] bool has_page() const { return page_.has_value(); }
  // The events that follow are of this step.
  void begin(const std::string& step);
  void add(std::string_view event);
  void take(const JobPicture& picture);
  // Returns why one could not be written, once for each; empty: nothing.
  std::string failure();

 private:
  std::optional<PageFile> page_;
  std::optional<SpanFile> spans_;
};

}  // namespace hvd::launch
