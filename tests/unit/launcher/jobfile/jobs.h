// Job files that tests read, and the runs that come of them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/jobfile/job_run.h"

namespace hvd::launch::jobfile_test {

inline JobFile job_of(const std::string& text, const std::string& file = "job.yaml") {
  auto loaded = parse_job_file(text, file, {"account", {"FROM_ME=here"}});
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  return std::move(loaded).value().job;
}

inline std::string refusal_of(const std::string& text, const std::string& file = "job.yaml") {
  const auto loaded = parse_job_file(text, file, {});
  return loaded.ok() ? "" : loaded.error().message();
}

inline JobRun run_of(const std::string& text, const std::string& hosts, JobRunOptions options = {}) {
  JobFile job = job_of(text);
  auto layout = lay_out(job, parse_host_list(hosts).value(), 0);
  REQUIRE_MESSAGE(layout.ok(), layout.error().message());
  options.id = "1d";
  options.uuid = "uuid";
  auto run = make_job_run(std::move(job), std::move(layout).value(), std::move(options));
  REQUIRE_MESSAGE(run.ok(), run.error().message());
  return std::move(run).value();
}

inline std::string value_in(const Settings& env, const std::string& name) {
  const auto found = std::find_if(env.rbegin(), env.rend(), [&](const auto& pair) { return pair.first == name; });
  return found == env.rend() ? "(none)" : found->second;
}

// All that is run, in whatever shell.
inline std::string set_up_of(const JobRun& run, const std::vector<JobNodeFacts>& facts) {
  JobTexts texts("/agent");
  texts.add(set_up_script(run, facts, 0, texts).value());
  return texts.joined();
}

inline std::string process_of(const JobRun& run) {
  JobTexts texts("/agent");
  texts.add(process_script(run, 0, texts).value());
  return texts.joined();
}

}  // namespace hvd::launch::jobfile_test
