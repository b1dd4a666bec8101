// HostCheck asks one host's agent what a check wants to know of the host, and keeps the answers in its CheckedHost. It
// asks for the clock first, several times, since the work for the survey would delay these answers.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/check/check_result.h"
#include "launcher/check/clock_offset.h"
#include "launcher/job/job_spec.h"
#include "launcher/wire/check_messages.h"

namespace hvd::launch {

class HostCheck {
 public:
  using Send = std::function<void(AgentMessage type, const std::string& body)>;

  // `spec` is the job that the host would run. `host` gets the answers, and lives longer than this.
  HostCheck(const JobSpec& spec, bool wants_mpirun, CheckedHost& host, Send send)
      : spec_(spec), wants_mpirun_(wants_mpirun), host_(host), send_(std::move(send)) {}

  // Something happens on the way to the host: "pushing the agent (1.9 MB)".
  void on_progress(const std::string& what) { last_step_ = what; }
  // Its agent can be asked now.
  void begin() { ask_clock(); }
  // Takes what its agent says of the host. An error: it was not asked for that.
  Result<void> on_answer(AgentMessage type, const std::string& body);
  // All is known that will be: every answer, or why there is none.
  [[nodiscard]] bool is_settled() const;
  // Returns what has happened last on the way to the host; empty: nothing.
  [[nodiscard]] const std::string& last_step() const { return last_step_; }

 private:
  void ask_clock();
  void ask_survey();
  Result<void> on_clock(const std::string& body);

  // constant after construction
  const JobSpec& spec_;
  const bool wants_mpirun_;
  CheckedHost& host_;
  const Send send_;
  // loop only
  std::vector<ClockSample> clock_;
  std::int64_t clock_sent_ns_ = 0;
  std::string last_step_;
};

}  // namespace hvd::launch
