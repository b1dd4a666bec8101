// JsonReporter prints a job as events for programs (--json), one JSON object a line. launcher/report/README.md lists
// the events and their fields, which are stable: new ones may be added.
//
// A line is always valid UTF-8 and holds no newline. Bytes that are not UTF-8 in a name, an argument or a rank's last
// lines are replaced by U+FFFD. Thread: loop only.
#pragma once

#include <chrono>
#include <functional>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"

namespace hvd::launch {

using TimeOfDay = std::function<std::chrono::system_clock::time_point()>;

class JsonReporter final : public JobReporter {
 public:
  // `spec` and `placement` must outlive it.
  JsonReporter(const JobSpec& spec, const Placement& placement, TimeOfDay time)
      : spec_(spec), placement_(placement), time_(std::move(time)) {}

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
  const JobSpec& spec_;
  const Placement& placement_;
  const TimeOfDay time_;
};

// Reports a job that ended before there was a reporter, with the same lines as on_refused().
Lines json_refusal(const Error& why, int exit_code, const TimeOfDay& time);
// Returns one of hvdrun's own diagnostics as the event "log".
std::string json_log_line(LogLevel level, std::string_view message, const TimeOfDay& time);

}  // namespace hvd::launch
