// RecordReporter keeps the records of a job (job_records.h) of the news that it passes on to another reporter.
//
// Thread: loop only.
#pragma once

#include <memory>
#include <utility>

#include "launcher/page/job_records.h"
#include "launcher/report/json_reporter.h"
#include "launcher/run/job_reporter.h"

namespace hvd::launch {

class RecordReporter final : public JobReporter {
 public:
  // `records`, `spec` and `placement` outlive it.
  RecordReporter(std::unique_ptr<JobReporter> inner, JobRecords& records, const JobSpec& spec,
                 const Placement& placement, TimeOfDay time)
      : inner_(std::move(inner)), records_(records), events_(spec, placement, std::move(time)) {}

  Lines on(const JobNews& news) override;
  [[nodiscard]] std::string status() const override { return inner_->status(); }

 private:
  const std::unique_ptr<JobReporter> inner_;
  JobRecords& records_;
  JsonReporter events_;  // they are made of what programs are told
};

}  // namespace hvd::launch
