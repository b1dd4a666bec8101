// JsonReporter prints a job as events for programs (--json), one JSON object a line. launcher/docs/json.md lists
// the events and their fields, which are stable: new ones may be added.
//
// A line is always valid UTF-8 and holds no newline. Bytes that are not UTF-8 in a name, an argument or a rank's last
// lines are replaced by U+FFFD. The job's hidden texts are masked: lines are kept in its records too (page/). Thread:
// loop only.
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

  Lines on(const JobNews& news) override;
  [[nodiscard]] std::string status() const override;

 private:
  [[nodiscard]] Lines lines_of(const news::Begun& begun) const;
  [[nodiscard]] Lines lines_of(const news::NodeReady& ready) const;
  [[nodiscard]] Lines lines_of(const news::NodeAway& gone) const;
  [[nodiscard]] Lines lines_of(const news::NodeBack& back) const;
  [[nodiscard]] Lines lines_of(const news::NodeLost& lost) const;
  [[nodiscard]] Lines lines_of(const news::RankStarted& started) const;
  [[nodiscard]] Lines lines_of(const news::RankEnded& ended) const;
  [[nodiscard]] Lines lines_of(const news::RankRestarted& restarted) const;
  [[nodiscard]] Lines lines_of(const news::AllRestarted& restarted) const;
  [[nodiscard]] Lines lines_of(const news::GenerationFormed& formed) const;
  [[nodiscard]] Lines lines_of(const news::NodeJoining& joining) const;
  [[nodiscard]] Lines lines_of(const Note& note) const;
  [[nodiscard]] Lines lines_of(const news::EngineLine& said) const;
  [[nodiscard]] Lines lines_of(const news::Failing& failing) const;
  [[nodiscard]] Lines lines_of(const Failure& failure) const;
  [[nodiscard]] Lines lines_of(const news::Refused& refused) const;
  [[nodiscard]] Lines lines_of(const news::Ended& ended) const;
  // The rest is for people: node_ready says who has answered, and --verbose makes "log" events of the steps to it.
  template <typename Other>
  [[nodiscard]] Lines lines_of(const Other& /*news*/) const {
    return {};
  }

  const JobSpec& spec_;
  const Placement& placement_;
  const TimeOfDay time_;
};

// Reports a job that ended before there was a reporter, with the lines of news::Refused. `hidden`: as the job's.
Lines json_refusal(const Error& why, int exit_code, const TimeOfDay& time, const std::vector<std::string>& hidden);
// Returns one of hvdrun's own diagnostics as the event "log".
std::string json_log_line(LogLevel level, std::string_view message, const TimeOfDay& time,
                          const std::vector<std::string>& hidden);

}  // namespace hvd::launch
