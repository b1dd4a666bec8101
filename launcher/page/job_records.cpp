#include "launcher/page/job_records.h"

namespace hvd::launch {

JobRecords::JobRecords(const JobSpec& job, const Clock& clock, bool is_page_private) {
  if (!job.page.empty()) {
    page_.emplace(job.page, clock, is_page_private);
  }
  if (!job.spans.empty()) {
    spans_.emplace(job.spans, span_place_of(job.trace_parent));
  }
}

void JobRecords::begin(const std::string& step) {
  if (spans_) {
    spans_->begin(step);
  }
}

void JobRecords::add(std::string_view event) {
  if (page_) {
    page_->add(event);
  }
  if (spans_) {
    spans_->add(event);
  }
}

void JobRecords::take(const JobPicture& picture) {
  if (page_) {
    page_->take(picture);
  }
}

std::string JobRecords::failure() {
  const std::string of_page = page_ ? page_->failure() : "";
  return !of_page.empty() || !spans_ ? of_page : spans_->failure();
}

}  // namespace hvd::launch
