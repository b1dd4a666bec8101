// PageReporter keeps the page of a job (page_file.h) of the news that it passes on to another reporter.
//
// Thread: loop only.
#pragma once

#include <memory>
#include <utility>

#include "launcher/page/page_file.h"
#include "launcher/report/json_reporter.h"
#include "launcher/run/job_reporter.h"

namespace hvd::launch {

class PageReporter final : public JobReporter {
 public:
  // `page`, `spec` and `placement` outlive it.
  PageReporter(std::unique_ptr<JobReporter> inner, PageFile& page, const JobSpec& spec, const Placement& placement,
               TimeOfDay time)
      : inner_(std::move(inner)), page_(page), events_(spec, placement, std::move(time)) {}

  Lines on(const JobNews& news) override;
  [[nodiscard]] std::string status() const override { return inner_->status(); }

 private:
  const std::unique_ptr<JobReporter> inner_;
  PageFile& page_;
  JsonReporter events_;  // the page is made of what programs are told
};

}  // namespace hvd::launch
