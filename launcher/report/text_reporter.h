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

  Lines on_begin(const std::string& job_id) override;
  Lines on_node_progress(int node, const std::string& what) override;
  Lines on_node_ready(int node, const ReadyMessage& ready) override;
  Lines on_slow_start() override;
  Lines on_all_ready(Duration took) override;
  Lines on_node_away(int node, const Error& why, Duration patience) override;
  Lines on_node_back(int node, Duration away) override;
  Lines on_node_lost(int node, const Error& why) override;
  Lines on_rank_started(int rank, int pid) override;
  Lines on_rank_ended(int rank, const ExitStatus& status, const ExitDetail& detail) override;
  Lines on_rank_restarted(int rank, const std::string& cause, int number, int limit) override;
  Lines on_note(const Note& note) override;
  Lines on_engine_line(const std::string& engine, const std::string& line) override;
  Lines on_failing(const Cause& cause) override;
  Lines on_failure(const Failure& failure) override;
  Lines on_refused(const Error& why, int exit_code) override;
  Lines on_end(const JobState& state, Duration took) override;
  [[nodiscard]] std::string status() const override;

 private:
  const Placement& placement_;
  const TextOptions options_;
  StartProgress start_;
  std::string told_;  // the start's progress, as last printed on a line
};

}  // namespace hvd::launch
