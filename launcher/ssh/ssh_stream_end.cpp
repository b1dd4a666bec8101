// These are the ends of an SshConversation: its agent ended, it never came up, or nothing more is heard.
#include <algorithm>

#include "launcher/ssh/ssh_stream.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Starting the agent has failed when no byte goes to or from a node for so long. It fails in any case when
// SshOptions::answer_time is over, though not before a moment without a byte. The time is generous: a ~/.bashrc that
// runs `pyenv init` waits up to 60 s for a lock when many shells start at once (measured with 12 on one machine).
constexpr Duration kStartPatience = std::chrono::seconds(120);
constexpr int kMomentsPerAnswer = 20;
// The exit status may follow the end of the output by so much. An agent that lives on without output is not waited for.
constexpr Duration kEndPatience = std::chrono::seconds(2);

}  // namespace

void SshConversation::begin_ending() {
  stage_ = Stage::kEnding;
  expect_end();
}

void SshConversation::expect_end() {
  shared_->loop.cancel(timer_);
  timer_ = shared_->loop.after(kEndPatience, [this] {
    const auto self = shared_from_this();
    finish(is_agent_up_ ? Error(Code::kLostPeer, target_.host + ": the agent closed its output")
                        : start_error("the remote shell closed its output"));
  });
}

void SshConversation::drive_ending() {
  const auto closed = session_->wait_closed();
  if (closed.ok() && closed.value() == SshStep::kAgain) {
    return;
  }
  if (!closed.ok()) {
    return finish(is_agent_up_
                      ? Error(Code::kLostPeer, target_.host + ": the connection broke: " + closed.error().message())
                      : start_error(closed.error().message()));
  }
  finish(end_error());
}

// Says why the agent did not start. `how` is what ssh knows; if the script said more, that counts for more.
Error SshConversation::start_error(const std::string& how) const {
  const std::string remote = errors_.last_line();
  const std::string noise = greeting_.last_noise();
  std::string text = target_.host + ": the agent did not start: ";
  if (!greeting_.failure().empty()) {
    text += greeting_.failure() + (remote.empty() ? "" : " (" + remote + ")");
  } else {
    text += how + (remote.empty() ? "" : "; its standard error: " + remote) +
            (noise.empty() ? "" : "; it printed: " + noise);
  }
  return Error(Code::kUnreachable, text);
}

Error SshConversation::end_error() const {
  const SshSession::Exit exit = session_->exit();
  const std::string how = exit.signal.empty() ? "exit status " + std::to_string(exit.status) : "signal " + exit.signal;
  if (!is_agent_up_) {
    return start_error("the remote shell ended (" + how + ") before it started the agent");
  }
  const std::string remote = errors_.last_line();
  return Error(kAgentEnded, target_.host + ": the agent ended (" + how + ")" + (remote.empty() ? "" : ": " + remote));
}

void SshConversation::expect_progress() {
  const Duration limit = shared_->options.answer_time;
  const Duration left = began_ + limit - shared_->loop.now();
  const Duration patience = std::min(kStartPatience, std::max(left, limit / kMomentsPerAnswer));
  shared_->loop.cancel(timer_);
  timer_ = shared_->loop.after(patience, [this, patience] { on_no_progress(patience); });
}

void SshConversation::on_no_progress(Duration patience) {
  const auto self = shared_from_this();
  const std::string silent = "nothing was heard from the node for " + duration_text(patience);
  constexpr const char* kShell = "does its login shell hang (~/.bashrc), or the file system of its home directory?";
  if (stage_ == Stage::kOpening) {
    return finish(start_error("logged in, and then " + silent + ", not even that its login shell was started"));
  }
  if (pushed_image_ != nullptr) {
    return finish(start_error("it was being pushed, and after " + std::to_string(pushed_) + " bytes of it " + silent +
                              "; " + kShell));
  }
  finish(start_error("logged in, its login shell was started, and then " + silent + "; " + kShell));
}

}  // namespace hvd::launch
