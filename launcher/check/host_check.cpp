#include "launcher/check/host_check.h"

#include <algorithm>

#include "launcher/run/start_plan.h"
#include "runtime/base/clock.h"

namespace hvd::launch {
namespace {

// The clock is asked this often; the answer with the shortest round trip counts (clock_offset.h).
constexpr std::size_t kClockQuestions = 5;
// A survey runs Python and nvidia-smi and looks at file systems, for this long unless --start-timeout is shorter.
constexpr Duration kSurveyTime = std::chrono::seconds(30);

// Returns the programs of which a host must have one. One that --sync brings is not there yet.
std::vector<std::string> programs_of(const std::vector<std::string>& argv, bool is_brought) {
  if (argv.empty()) {
    return {"python", "python3"};
  }
  const bool comes_along = is_brought && !argv.front().starts_with('/') && argv.front().find('/') != std::string::npos;
  return comes_along ? std::vector<std::string>() : std::vector{argv.front()};
}

}  // namespace

void HostCheck::ask_clock() {
  clock_sent_ns_ = unix_ns();
  send_(AgentMessage::kAskClock, number_body(static_cast<std::int32_t>(clock_.size())));
}

void HostCheck::ask_survey() {
  SurveyRequest request;
  add_environment(spec_, host_.opened.is_local, request.start);
  const bool is_brought = !spec_.sync_dir.empty() && !host_.opened.is_local;
  request.start.cwd = is_brought ? "" : spec_.cwd;
  request.start.argv = spec_.argv.empty() ? std::vector<std::string>{"python"} : spec_.argv;
  request.programs = programs_of(spec_.argv, is_brought);
  request.start.ranks.push_back(StartMessage::Rank{host_.plan.ranks.front().rank, {}, {}});
  request.wants_mpirun = wants_mpirun_;
  const Duration patience = std::min(kSurveyTime, spec_.start_timeout / 2);
  request.patience_ms =
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
  send_(AgentMessage::kAskSurvey, request.encode());
}

Result<void> HostCheck::on_answer(AgentMessage type, const std::string& body) {
  if (type == AgentMessage::kClock) {
    return on_clock(body);
  }
  if (type == AgentMessage::kSystem) {
    HVD_TRY_ASSIGN(host_.system, SystemSurvey::decode(body));
  } else if (type == AgentMessage::kSoftware) {
    HVD_TRY_ASSIGN(host_.software, SoftwareSurvey::decode(body));
  } else {
    return Error(Code::kProtocol, "its agent answered what it was not asked");
  }
  return {};
}

Result<void> HostCheck::on_clock(const std::string& body) {
  const std::int64_t now = unix_ns();
  HVD_TRY_ASSIGN(const ClockMessage clock, ClockMessage::decode(body));
  if (clock.number != clock_.size() || host_.clock) {
    return Error(Code::kProtocol, "its agent answered what it was not asked");
  }
  clock_.push_back(ClockSample{clock_sent_ns_, clock.unix_ns, now});
  if (clock_.size() < kClockQuestions) {
    ask_clock();
    return {};
  }
  host_.clock = clock_offset(clock_);
  ask_survey();
  return {};
}

bool HostCheck::is_settled() const {
  return host_.error || (host_.clock && host_.system && host_.software);
}

}  // namespace hvd::launch
