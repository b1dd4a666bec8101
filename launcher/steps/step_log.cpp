#include "launcher/steps/step_log.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "launcher/job/hidden_texts.h"
#include "launcher/logs/spdlog_log.h"
#include "launcher/report/json_reporter.h"
#include "launcher/report/text_reporter.h"

namespace hvd::launch {

namespace {

// JsonLog writes diagnostics as events.
class JsonLog final : public Log {
 public:
  JsonLog(LogLevel lowest, std::vector<std::string> hidden, std::function<void(std::string_view)> write)
      : lowest_(lowest), hidden_(std::move(hidden)), write_(std::move(write)) {}

  void write(LogLevel level, std::string_view message) override {
    if (level >= lowest_) {
      write_(json_log_line(level, message, std::chrono::system_clock::now, hidden_));
    }
  }

 private:
  const LogLevel lowest_;
  const std::vector<std::string> hidden_;
  const std::function<void(std::string_view)> write_;
};

}  // namespace

void write_error_line(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

std::string line_of(const JobSpec& job, const std::string& text) {
  return job.json_events ? json_log_line(LogLevel::kWarning, text, std::chrono::system_clock::now, job.hidden)
                         : "hvdrun: " + masked(text, job.hidden);
}

void say(const JobSpec& job, const std::string& text) {
  write_error_line(line_of(job, text));
}

void say_unless_quiet(const JobSpec& job, const std::string& text) {
  if (!job.quiet) {
    say(job, text);
  }
}

std::unique_ptr<Log> log_of(const JobSpec& job, std::function<void(std::string_view)> write) {
  const LogLevel lowest = job.verbose ? LogLevel::kDebug : LogLevel::kWarning;
  if (job.json_events) {
    return std::make_unique<JsonLog>(lowest, job.hidden, std::move(write));
  }
  return make_spdlog_log(
      lowest, [write = std::move(write), hidden = job.hidden](std::string_view line) { write(masked(line, hidden)); });
}

std::unique_ptr<JobReporter> reporter_of(const JobSpec& job, const Placement& placement) {
  if (job.json_events) {
    return std::make_unique<JsonReporter>(job, placement, std::chrono::system_clock::now);
  }
  return std::make_unique<TextReporter>(placement, TextOptions{job.quiet, job.live && ::isatty(STDERR_FILENO) == 1});
}

}  // namespace hvd::launch
