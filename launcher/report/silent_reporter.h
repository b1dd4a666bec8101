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

  Lines on_begin(const std::string& /*job_id*/) override { return {}; }
  Lines on_node_progress(int /*node*/, const std::string& /*what*/) override { return {}; }
  Lines on_node_ready(int /*node*/, const ReadyMessage& /*ready*/) override { return {}; }
  Lines on_slow_start() override { return {}; }
  Lines on_all_ready(Duration /*took*/) override { return {}; }
  Lines on_node_away(int /*node*/, const Error& /*why*/, Duration /*patience*/) override { return {}; }
  Lines on_node_back(int /*node*/, Duration /*away*/) override { return {}; }
  Lines on_node_lost(int /*node*/, const Error& /*why*/) override { return {}; }
  Lines on_rank_started(int /*rank*/, int /*pid*/) override { return {}; }
  Lines on_rank_ended(int /*rank*/, const ExitStatus& /*status*/, const ExitDetail& /*detail*/) override { return {}; }
  Lines on_rank_restarted(int /*rank*/, const std::string& /*cause*/, int /*number*/, int /*limit*/) override {
    return {};
  }
  Lines on_note(const Note& /*note*/) override { return {}; }
  Lines on_engine_line(const std::string& /*engine*/, const std::string& /*line*/) override { return {}; }
  Lines on_failing(const Cause& /*cause*/) override { return {}; }
  Lines on_failure(const Failure& failure) override {
    failure_.insert(failure_.end(), failure.cause.lines.begin(), failure.cause.lines.end());
    return {};
  }
  Lines on_refused(const Error& why, int /*exit_code*/) override {
    failure_.push_back(why.message());
    return {};
  }
  Lines on_end(const JobState& /*state*/, Duration /*took*/) override { return {}; }
  [[nodiscard]] std::string status() const override { return ""; }

 private:
  Lines& failure_;
};

}  // namespace hvd::launch
