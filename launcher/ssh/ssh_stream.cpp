#include "launcher/ssh/ssh_stream.h"

#include <algorithm>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// One turn moves at most so many bytes for one node, so that a busy node does not keep the loop from the others.
constexpr std::size_t kTurnBytes = 1024 * 1024;
constexpr Duration kNudge = std::chrono::milliseconds(20);
// Starting the agent has failed when no byte goes to or from a node for so long. It fails in any case when
// SshOptions::answer_time is over, though not before a moment without a byte. The time is generous: a ~/.bashrc that
// runs `pyenv init` waits up to 60 s for a lock when many shells start at once (measured with 12 on one machine).
constexpr Duration kStartPatience = std::chrono::seconds(120);
constexpr int kMomentsPerAnswer = 20;
// The exit status may follow the end of the output by so much. An agent that lives on without output is not waited for.
constexpr Duration kEndPatience = std::chrono::seconds(2);

}  // namespace

SshConversation::SshConversation(std::shared_ptr<SshShared> shared, const NodeTarget& target, StreamSink& sink)
    : shared_(std::move(shared)), target_(target), sink_(sink), errors_(shared_->log, target.host) {}

SshConversation::~SshConversation() {
  release();
}

void SshConversation::start() {
  began_ = shared_->loop.clock().now();  // the loop may not run yet
  reach_ = std::make_unique<SshReach>(*shared_, target_,
                                      [this](Result<Reached> reached) { on_reached(std::move(reached)); });
  reach_->start();
}

void SshConversation::write(std::string bytes) {
  if (system_ssh_ != nullptr) {
    return system_ssh_->write(std::move(bytes));
  }
  input_.write(std::move(bytes));
  drive_later();
}

void SshConversation::close_input() {
  if (system_ssh_ != nullptr) {
    return system_ssh_->close_input();
  }
  input_.finish();
  drive_later();
}

void SshConversation::abandon() {
  stage_ = Stage::kOver;
  release();
}

void SshConversation::release() {
  shared_->loop.cancel(timer_);
  shared_->loop.cancel(nudge_);
  shared_->loop.unwatch(watch_);
  timer_ = 0;
  nudge_ = 0;
  watch_ = 0;
  reach_.reset();
  session_.reset();
  system_ssh_.reset();
}

void SshConversation::finish(const Error& why) {
  if (stage_ == Stage::kOver) {
    return;
  }
  stage_ = Stage::kOver;
  release();
  sink_.on_closed(why);
}

void SshConversation::on_reached(Result<Reached> reached) {
  const auto self = shared_from_this();
  const std::unique_ptr<SshReach> reach = std::move(reach_);  // its slot is free for the next node
  if (!reached.ok()) {
    return reach->way_out().because.empty() ? finish(reached.error()) : switch_over(*reach);
  }
  const Result<AgentImages>& images = shared_->agent_images();
  if (!images.ok()) {
    return finish(images.error().with_context(target_.host));
  }
  command_ = agent_start_command(images.value());
  session_ = std::move(reached.value().session);
  opened_.node_address = reached.value().node_address;
  opened_.launcher_address = reached.value().launcher_address;
  auto watch = shared_->loop.watch(session_->fd(), EPOLLIN, [this](std::uint32_t) { drive(); });
  if (!watch.ok()) {
    return finish(watch.error().with_context(target_.host));
  }
  watch_ = watch.value();
  stage_ = Stage::kOpening;
  expect_progress();
  drive();
}

void SshConversation::switch_over(const SshReach& reach) {
  const WayOut& way_out = reach.way_out();
  const std::string what = "using the system's ssh, because " + way_out.because;
  if (std::exchange(shared_->has_told_switch, true)) {
    sink_.on_progress(what);
  } else {
    sink_.on_notice(what);
  }
  if (stage_ == Stage::kOver) {
    return;
  }
  RshCommand command = system_ssh_command(reach.request(), ssh_connect_timeout(shared_->options, reach.config()),
                                          reach.config().has_remote_command);
  command.lookup = reach.config().hostname;
  command.afterword = "; the system's ssh is used because " + way_out.because +
                      (way_out.own_try.empty() ? "" : "; hvdrun's own try: " + way_out.own_try);
  system_ssh_ =
      std::make_unique<RshStream>(std::make_shared<RshConversation>(shared_->system_ssh, std::move(command), sink_));
  system_ssh_->write(input_.release());
  if (input_.wants_end()) {
    system_ssh_->close_input();
  }
}

void SshConversation::drive() {
  const auto self = shared_from_this();
  if (stage_ == Stage::kOpening) {
    drive_opening();
  }
  if (stage_ == Stage::kStarting || stage_ == Stage::kOpen) {
    drive_bytes();
  }
  if (stage_ == Stage::kEnding) {
    drive_ending();
  }
  update_watch();
}

void SshConversation::drive_later() {
  if (is_scheduled_ || stage_ == Stage::kOver) {
    return;
  }
  is_scheduled_ = true;
  shared_->loop.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->is_scheduled_ = false;
      self->drive();
    }
  });
}

void SshConversation::update_watch() {
  if (session_ != nullptr) {
    shared_->loop.rewatch(watch_, session_->wanted_events());
  }
}

void SshConversation::drive_opening() {
  if (!has_channel_) {
    const Result<SshStep> opened = session_->open_channel();
    if (!opened.ok()) {
      return finish(start_error(opened.error().message()));
    }
    if (opened.value() == SshStep::kAgain) {
      return;
    }
    has_channel_ = true;
  }
  const Result<SshStep> begun = session_->exec(command_);
  if (!begun.ok()) {
    return finish(start_error(begun.error().message()));
  }
  if (begun.value() == SshStep::kDone) {
    stage_ = Stage::kStarting;
  }
}

// Each round takes what libssh2 has for us and gives what it accepts. Any call may have moved packets from the socket
// into libssh2, for which the socket will not become readable again. So we continue until nothing is left there.
void SshConversation::drive_bytes() {
  std::size_t moved = 0;
  std::size_t before = 0;
  int idle_rounds = 0;
  do {
    before = moved;
    moved += flush();
    for (const auto source : {SshSession::Source::kOutput, SshSession::Source::kErrors}) {
      if (session_ != nullptr) {
        moved += read_all(source, kTurnBytes);
      }
    }
    if (session_ == nullptr) {
      return;
    }
    if (session_->at_end()) {
      return begin_ending();
    }
    if (moved >= kTurnBytes) {
      return drive_later();
    }
    idle_rounds = moved == before ? idle_rounds + 1 : 0;
    if (idle_rounds > 1) {
      return nudge_if_stuck();
    }
  } while (session_->has_work(input_.has_more()));
}

// The window has room, and libssh2 still takes nothing: it renews the session's keys. Packets end that, but a call of
// ours that does not write may read the last of them off the socket. So we look again, rarely.
void SshConversation::nudge_if_stuck() {
  if (nudge_ == 0 && session_->has_work(input_.has_more())) {
    nudge_ = shared_->loop.after(kNudge, [this] {
      nudge_ = 0;
      drive();
    });
  }
}

std::size_t SshConversation::read_all(SshSession::Source source, std::size_t budget) {
  std::size_t total = 0;
  while (total < budget) {
    const auto got = session_->read(source, shared_->scratch);
    if (!got.ok()) {
      const Error lost = got.error().with_context(target_.host + ": the connection broke");
      finish(is_agent_up_ ? Error(Code::kLostPeer, lost.message()) : start_error(got.error().message()));
      return total;
    }
    if (got.value() == 0) {
      return total;
    }
    total += got.value();
    const Bytes bytes(shared_->scratch.data(), got.value());
    if (source == SshSession::Source::kErrors) {
      errors_.feed(as_text(bytes));
    } else {
      on_output(bytes);
    }
    if (session_ == nullptr) {
      return total;
    }
  }
  return total;
}

void SshConversation::on_output(Bytes bytes) {
  if (stage_ == Stage::kOpen) {
    sink_.on_bytes(bytes);
    return;
  }
  if (!greeting_.failure().empty()) {
    return;
  }
  expect_progress();
  greeting_.feed(bytes);
  on_greeting();
}

void SshConversation::on_greeting() {
  for (;;) {
    switch (greeting_.next()) {
      case AgentGreeting::Event::kNone:
        return;
      case AgentGreeting::Event::kNeed: {
        const AgentImage* image = shared_->agent_images().value().find(greeting_.wanted());
        if (image == nullptr) {
          return finish(Error(Code::kUnreachable, target_.host + ": asked for an agent for '" + greeting_.wanted() +
                                                      "', which was not offered"));
        }
        input_.push(image->bytes);
        sink_.on_progress(formatted("pushing the agent (%.1f MB)", static_cast<double>(image->bytes.size()) / 1e6));
        if (stage_ == Stage::kOver) {
          return;
        }
        break;
      }
      case AgentGreeting::Event::kFailed:
        // The remote shell may have printed the reason to its standard error. So we read on to the end, but with the
        // same deadline as for a shell that prints nothing.
        input_.give_up();
        return expect_end();
      case AgentGreeting::Event::kAgent:
        return on_agent();
    }
  }
}

void SshConversation::on_agent() {
  stage_ = Stage::kOpen;
  is_agent_up_ = true;
  input_.begin_session();
  shared_->loop.cancel(timer_);
  timer_ = 0;
  opened_.was_pushed = input_.has_image();
  sink_.on_open(opened_);
  if (stage_ == Stage::kOpen && !greeting_.rest().empty()) {
    sink_.on_bytes(as_bytes(greeting_.rest()));
  }
}

// Sends at most a turn's worth.
std::size_t SshConversation::flush() {
  std::size_t total = 0;
  while (total < kTurnBytes && !input_.next().empty()) {
    const auto taken = session_->write(as_bytes(input_.next().substr(0, kTurnBytes)));
    if (!taken.ok()) {
      input_.give_up();  // why stands in what the other side still has to say
      break;
    }
    if (taken.value() == 0) {
      break;
    }
    input_.take(taken.value());
    total += taken.value();
  }
  if (stage_ == Stage::kStarting && total > 0) {
    expect_progress();
    if (input_.has_image()) {
      shared_->system_ssh->pushed_at = shared_->loop.now();
    }
  }
  if (input_.is_end_next()) {
    const auto ended = session_->send_end_of_input();
    if (!ended.ok() || ended.value() == SshStep::kDone) {
      input_.end_sent();
    }
  }
  return total;
}

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
  if (input_.has_image()) {
    return finish(start_error("it was being pushed, and after " + std::to_string(input_.pushed()) + " bytes of it " +
                              silent + "; " + kShell));
  }
  finish(start_error("logged in, its login shell was started, and then " + silent + "; " + kShell));
}

}  // namespace hvd::launch
