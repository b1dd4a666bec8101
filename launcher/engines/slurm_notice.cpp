#include "launcher/engines/slurm_notice.h"

#include <algorithm>
#include <utility>

#include "launcher/process/output_of.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// A controller that takes longer is not asked again: the job ends meanwhile.
constexpr auto kAnswerTime = std::chrono::seconds(10);

// A job without a limit has an end all the same, which is as far away.
constexpr long long kNoLimit = 360LL * 24 * 3600;

EngineFailure no_advice(std::string_view /*output*/) {
  return {};
}

}  // namespace

SlurmNotice::SlurmNotice(EventLoop& loop, std::string job, std::vector<std::string> environment,
                         std::function<void(const std::string&)> say)
    : loop_(loop), job_(std::move(job)), environment_(std::move(environment)), say_(std::move(say)) {}

void SlurmNotice::ask() {
  if (squeue_ != nullptr) {
    return;
  }
  EngineCommand command;
  command.name = "squeue";
  command.argv = {"squeue", "-h", "-j", job_, "-o", "%T|%L"};
  command.environment = environment_;
  command.failure_in = no_advice;
  squeue_ = std::make_unique<Engine>(loop_, std::move(command));
  Engine::Handlers handlers;
  handlers.on_line = [this](const std::string& line) {
    if (const auto said = read_slurm_time(line)) {
      state_ = said->state;
      if (!said->left.empty()) {
        say_("Slurm's job " + job_ + " is " + state_ + ", and has " + said->left + " left");
      }
    }
  };
  handlers.on_over = [this](const Error& why) {
    if (state_.empty()) {
      failed_ = why;
    }
  };
  if (const auto started = squeue_->start(std::move(handlers)); !started.ok()) {
    failed_ = started.error();
  }
}

Result<void> SlurmNotice::settle() {
  ask();
  const Deadline deadline = Deadline::after(kAnswerTime);
  for (bool has_asked_again = false; state_.empty() && !deadline.has_passed();) {
    if (!failed_) {
      HVD_TRY(loop_.turn(deadline));
    } else if (has_asked_again) {
      return *failed_;
    } else {
      has_asked_again = true;  // what ends all processes of the job may have ended squeue too
      failed_.reset();
      squeue_.reset();
      ask();
    }
  }
  if (state_.empty()) {
    return Error(Code::kTimeout, "squeue does not answer");
  }
  return state_ == "RUNNING" ? Result<void>()
                             : Result<void>(Error(Code::kCancelled, "Slurm says that it is " + state_ +
                                                                        ", and begins it anew by itself where it was "
                                                                        "requeued or preempted"));
}

std::optional<SlurmTime> read_slurm_time(std::string_view line) {
  const std::size_t bar = line.find('|');
  if (bar == std::string_view::npos || bar == 0 || line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != bar) {
    return std::nullopt;  // a warning
  }
  SlurmTime said{std::string(line.substr(0, bar)), std::string(line.substr(bar + 1))};
  said.left.erase(0, std::min(said.left.find_first_not_of(' '), said.left.size()));
  if (said.left.find_first_not_of("0123456789-:") != std::string::npos) {
    said.left.clear();  // UNLIMITED, NOT_SET, INVALID
  }
  return said;
}

Result<void> requeue_slurm_job(const std::string& job, const std::vector<std::string>& environment) {
  const auto done = output_of({"scontrol", "requeue", job}, environment, Deadline::after(kAnswerTime));
  // Slurm ends every process of a job that it takes back: often scontrol too, before it has its answer.
  const bool is_taken = done.ok() || done.error().code() == Code::kCancelled;
  return is_taken ? Result<void>() : Result<void>(done.error());
}

std::string slurm_end_text(const std::vector<std::string>& environment, long long now_s) {
  const auto end = parse_number<long long>(value_in(environment, "SLURM_JOB_END_TIME"), 1);
  if (!end || *end <= now_s || *end - now_s > kNoLimit) {
    return "";
  }
  const long long left = *end - now_s;
  const auto two = [](long long number) { return (number < 10 ? "0" : "") + std::to_string(number); };
  const long long hours = left / 3600;
  return "; its time limit is in " + std::to_string(hours) + ":" + two(left / 60 % 60) + ":" + two(left % 60);
}

}  // namespace hvd::launch
