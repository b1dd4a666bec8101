#include "launcher/ssh/ssh_stream.h"

#include <array>
#include <cstdio>
#include <utility>

namespace hvd::launch {
namespace {

// One turn moves at most so many bytes for one node, so that a busy node does not keep the loop from the others.
constexpr std::size_t kTurnBytes = 1024 * 1024;
constexpr Duration kNudge = std::chrono::milliseconds(20);

std::string megabytes(std::size_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text.data();
}

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
  if (output_at_ == output_.size()) {
    output_ = std::move(bytes);
    output_at_ = 0;
  } else {
    output_ += bytes;
  }
  drive_later();
}

void SshConversation::close_input() {
  if (system_ssh_ != nullptr) {
    return system_ssh_->close_input();
  }
  wants_end_of_input_ = true;
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
  system_ssh_ = std::make_unique<RshStream>(shared_->system_ssh, std::move(command), sink_);
  system_ssh_->write(std::exchange(output_, ""));
  if (wants_end_of_input_) {
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
  } while (session_->has_work(has_output()));
}

// The window has room, and libssh2 still takes nothing: it renews the session's keys. Packets end that, but a call of
// ours that does not write may read the last of them off the socket. So we look again, rarely.
void SshConversation::nudge_if_stuck() {
  if (nudge_ == 0 && session_->has_work(has_output())) {
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
      case AgentGreeting::Event::kNeed:
        pushed_image_ = shared_->agent_images().value().find(greeting_.wanted());
        if (pushed_image_ == nullptr) {
          return finish(Error(Code::kUnreachable, target_.host + ": asked for an agent for '" + greeting_.wanted() +
                                                      "', which was not offered"));
        }
        sink_.on_progress("pushing the agent (" + megabytes(pushed_image_->bytes.size()) + ")");
        if (stage_ == Stage::kOver) {
          return;
        }
        break;
      case AgentGreeting::Event::kFailed:
        // The remote shell may have printed the reason to its standard error. So we read on to the end, but with the
        // same deadline as for a shell that prints nothing.
        is_input_broken_ = true;
        return expect_end();
      case AgentGreeting::Event::kAgent:
        return on_agent();
    }
  }
}

void SshConversation::on_agent() {
  stage_ = Stage::kOpen;
  is_agent_up_ = true;
  shared_->loop.cancel(timer_);
  timer_ = 0;
  opened_.was_pushed = pushed_image_ != nullptr;
  sink_.on_open(opened_);
  if (stage_ == Stage::kOpen && !greeting_.rest().empty()) {
    sink_.on_bytes(as_bytes(greeting_.rest()));
  }
}

bool SshConversation::has_output() const {
  if (is_input_broken_) {
    return false;
  }
  if (stage_ == Stage::kStarting) {
    return pushed_image_ != nullptr && pushed_ < pushed_image_->bytes.size();
  }
  return output_at_ < output_.size() || (wants_end_of_input_ && !has_ended_input_);
}

std::size_t SshConversation::flush() {
  if (!has_output()) {
    return 0;
  }
  if (stage_ == Stage::kStarting) {
    const std::size_t taken = write_from(pushed_image_->bytes, pushed_);
    if (taken > 0) {
      expect_progress();
    }
    return taken;
  }
  const std::size_t taken = write_from(output_, output_at_);
  if (output_at_ < output_.size() || is_input_broken_) {
    return taken;
  }
  output_.clear();
  output_at_ = 0;
  if (wants_end_of_input_ && !has_ended_input_) {
    const auto ended = session_->send_end_of_input();
    has_ended_input_ = !ended.ok() || ended.value() == SshStep::kDone;
  }
  return taken;
}

// Writes `text` from `at` on, at most a turn's worth, and moves `at`.
std::size_t SshConversation::write_from(const std::string& text, std::size_t& at) {
  std::size_t total = 0;
  while (at < text.size() && total < kTurnBytes) {
    const auto taken = session_->write(as_bytes(std::string_view(text).substr(at, kTurnBytes)));
    if (!taken.ok()) {
      is_input_broken_ = true;  // why stands in what the other side still has to say
      return total;
    }
    if (taken.value() == 0) {
      return total;
    }
    at += taken.value();
    total += taken.value();
  }
  return total;
}

}  // namespace hvd::launch
