// These functions make what hvdrun says of a step: its diagnostics and its reporter, in words or as events. There is
// one place for them, because a job says things before its first step, between steps and after the last.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/job/job_spec.h"
#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"
#include "runtime/base/log.h"

namespace hvd::launch {

// Writes to standard error where there is no job yet, or no longer one.
void write_error_line(std::string_view line);

// Returns a text of hvdrun's as a line of the job's: in words, or as an event.
std::string line_of(const JobSpec& job, const std::string& text);
// Says something where the job has no reporter.
void say(const JobSpec& job, const std::string& text);

// The same, where the job is told to be quiet: nothing.
void say_unless_quiet(const JobSpec& job, const std::string& text);

// Diagnostics as the job wants them. `write` gets complete lines, without a newline.
std::unique_ptr<Log> log_of(const JobSpec& job, std::function<void(std::string_view)> write);

// The reporter that the job wants. The placement outlives it, and may grow.
std::unique_ptr<JobReporter> reporter_of(const JobSpec& job, const Placement& placement);

}  // namespace hvd::launch
