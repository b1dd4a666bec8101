#include "launcher/command/rsh_stream.h"

#include <sys/socket.h>

#include <utility>

#include "launcher/transport/dropped.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// The name's addresses are only a hint, so a name server that does not answer may delay the job by no more than this.
constexpr Duration kNameTime = std::chrono::seconds(2);
// A command that is still silent after this does no handshake any more, but waits; the next one may begin.
constexpr Duration kSlotTime = std::chrono::seconds(10);
// Sending the agent has failed when no byte is taken for so long.
constexpr Duration kPushPatience = std::chrono::seconds(120);
// A command that has failed has this time for its last words.
constexpr Duration kEndPatience = std::chrono::seconds(2);
// An agent that must end gives its ranks 5 s, and needs a moment for the processes they left.
constexpr Duration kAgentPatience = std::chrono::seconds(8);
// ssh says in one line what is wrong, and in the next one or two that it gives up.
constexpr std::size_t kLastLines = 3;
// This exit status means that ssh itself failed, not a program behind it.
constexpr ExitStatus kSshFailed = {ExitStatus::Kind::kExited, 255};
// A connection that may have been dropped is tried so many times; then the server is taken to refuse it by a rule.
constexpr int kUnsureRetries = 3;

}  // namespace

RshConversation::RshConversation(std::shared_ptr<RshShared> shared, RshCommand command, StreamSink& sink)
    : shared_(std::move(shared)), command_(std::move(command)), sink_(sink), errors_(shared_->log, command_.host) {}

RshConversation::~RshConversation() {
  release();
}

void RshConversation::start() {
  ticket_ = shared_->slots.acquire([this] { run(); });
  if (command_.lookup.empty()) {
    is_named_ = true;
    return;
  }
  // The command works while the name is looked up.
  lookup_timer_ = shared_->loop.after(kNameTime, [this] { on_named(); });
  lookup_ = shared_->resolver.resolve(command_.lookup, 0, AF_UNSPEC, [this](Result<std::vector<SocketAddress>> found) {
    if (found.ok()) {
      for (const SocketAddress& address : found.value()) {
        opened_.named_addresses.push_back(address.ip());
      }
    }
    on_named();
  });
}

void RshConversation::on_named() {
  const auto self = shared_from_this();
  shared_->resolver.cancel(lookup_);
  shared_->loop.cancel(lookup_timer_);
  is_named_ = true;
  open_if_named();
}

void RshConversation::run() {
  const auto self = shared_from_this();
  stage_ = Stage::kStarting;
  const Result<AgentImages>& images = shared_->agent_images();
  if (!images.ok()) {
    return finish(images.error().with_context(command_.host));
  }
  const Duration limit = shared_->settings.answer_time;
  arm(limit, "gave no answer within " + duration_text(limit) + "; try it by hand");
  slot_timer_ = shared_->loop.after(kSlotTime, [this] { release_slot(); });
  try_again();
}

void RshConversation::try_again() {
  const auto self = shared_from_this();
  backoff_ = 0;
  errors_.forget();
  if (const Result<void> started = start_process(shared_->agent_images().value()); !started.ok()) {
    finish(Error(Code::kUnreachable,
                 command_.host + ": " + command_.label + ": " + started.error().message() + command_.afterword));
  }
}

Result<void> RshConversation::start_process(const AgentImages& images) {
  std::vector<std::string> argv = command_.argv;
  argv.emplace_back("sh");
  ByteProcess::Handlers handlers;
  handlers.on_output = [this](Bytes bytes) { on_output(bytes); };
  handlers.on_errors = [this](std::string_view text) { errors_.feed(text); };
  handlers.on_taken = [this] {
    if (stage_ == Stage::kStarting && is_pushing_) {
      arm(kPushPatience, "took no byte of the agent for " + duration_text(kPushPatience));
      shared_->pushed_at = shared_->loop.now();
    }
  };
  handlers.on_over = [this](const std::optional<ExitStatus>& status, const std::string& how) { on_over(status, how); };
  if (command_.start) {
    HVD_TRY_ASSIGN(process_, command_.start(std::move(argv), std::move(handlers)));
  } else {
    HVD_TRY_ASSIGN(process_, RshProcess::start(shared_->loop, shared_->ladder, argv, shared_->settings.environment,
                                               shared_->settings.open_files, std::move(handlers)));
  }
  process_->write(agent_start_line(images));
  return {};
}

void RshConversation::write(std::string bytes) {
  if (stage_ == Stage::kOpen) {
    process_->write(std::move(bytes));
  } else {
    early_ += bytes;
  }
}

void RshConversation::close_input() {
  wants_end_of_input_ = true;
  if (stage_ == Stage::kOpen) {
    process_->close_input();
  }
}

void RshConversation::abandon() {
  stage_ = Stage::kOver;
  release();
}

void RshConversation::on_output(Bytes bytes) {
  const auto self = shared_from_this();
  has_spoken_ = true;
  if (stage_ == Stage::kOpen) {
    sink_.on_bytes(bytes);
  } else if (greeting_.failure().empty()) {
    greeting_.feed(bytes);
    if (stage_ == Stage::kStarting) {
      on_greeting();
    }
  }
}

void RshConversation::on_greeting() {
  for (;;) {
    switch (greeting_.next()) {
      case AgentGreeting::Event::kNone:
        return;
      case AgentGreeting::Event::kNeed: {
        const AgentImage* image = shared_->agent_images().value().find(greeting_.wanted());
        if (image == nullptr) {
          return finish(start_error("asked for an agent for '" + greeting_.wanted() + "', which was not offered"));
        }
        release_slot();
        sink_.on_progress(formatted("pushing the agent (%.1f MB)", static_cast<double>(image->bytes.size()) / 1e6));
        if (stage_ == Stage::kOver) {
          return;
        }
        arm(kPushPatience, "took no byte of the agent for " + duration_text(kPushPatience));
        is_pushing_ = true;
        process_->push(*image);
        break;
      }
      case AgentGreeting::Event::kFailed:
        // The reason may stand in its standard error: so that is read to the end, within a deadline.
        process_->close_input();
        arm(kEndPatience, "did not end");
        return;
      case AgentGreeting::Event::kAgent:
        return on_agent();
    }
  }
}

void RshConversation::on_agent() {
  stage_ = Stage::kGreeted;
  shared_->loop.cancel(timer_);
  release_slot();
  process_->set_patience(kAgentPatience);
  opened_.was_pushed = is_pushing_;
  open_if_named();
}

void RshConversation::open_if_named() {
  if (stage_ != Stage::kGreeted || !is_named_) {
    return;
  }
  stage_ = Stage::kOpen;
  sink_.on_open(opened_);
  if (stage_ != Stage::kOpen) {
    return;
  }
  if (!early_.empty()) {
    process_->write(std::exchange(early_, ""));
  }
  if (wants_end_of_input_) {
    process_->close_input();
  }
  if (!greeting_.rest().empty()) {
    sink_.on_bytes(as_bytes(greeting_.rest()));
  }
}

void RshConversation::on_over(const std::optional<ExitStatus>& status, const std::string& how) {
  const auto self = shared_from_this();
  if (stage_ != Stage::kOpen) {
    return may_try_again(status) ? try_later() : finish(start_error(how));
  }
  const std::string words = errors_.last_lines(kLastLines);
  finish(Error(Code::kLostPeer, command_.host + ": the agent ended, or the way to it broke: " + command_.label + " " +
                                    how + (words.empty() ? "" : ": " + words)));
}

bool RshConversation::may_try_again(const std::optional<ExitStatus>& status) const {
  if (stage_ != Stage::kStarting || has_spoken_ || !status || *status != kSshFailed) {
    return false;
  }
  const Dropped dropped = dropped_by(errors_.tail());
  return dropped == Dropped::kBeforeLogin || (dropped == Dropped::kPerhaps && drops_ < kUnsureRetries);
}

// The new try must answer within the same time, which goes on. It keeps its slot if it has one, since other nodes would
// fare no better at the same server.
void RshConversation::try_later() {
  process_.reset();
  backoff_ = shared_->loop.after(drop_backoff(drops_, shared_->jitter), [this] { try_again(); });
  if (drops_++ == 0) {
    sink_.on_progress("the connection was dropped before the login; trying again");
  }
}

void RshConversation::arm(Duration patience, const std::string& what) {
  shared_->loop.cancel(timer_);
  timer_ = shared_->loop.after(patience, [this, what] {
    const auto self = shared_from_this();
    finish(Error(Code::kTimeout, start_error(what).message()));
  });
}

// ssh's warning about a changed key is longer than the lines we quote, which would only tell how to get rid of it.
std::string RshConversation::last_words() const {
  constexpr const char* kChanged = "REMOTE HOST IDENTIFICATION HAS CHANGED";
  return (errors_.has(kChanged) ? std::string(kChanged) + "; " : "") + errors_.last_lines(kLastLines);
}

Error RshConversation::start_error(const std::string& how) const {
  const std::string words = last_words();
  const std::string noise = greeting_.last_noise();
  std::string text = command_.host + ": ";
  if (!greeting_.failure().empty()) {
    text += "the agent did not start: " + greeting_.failure() + (words.empty() ? "" : " (" + words + ")");
  } else {
    text += command_.label + " " + how + (words.empty() ? "" : ": " + words) +
            (noise.empty() ? "" : "; it printed: " + noise);
  }
  if (drops_ > 0) {
    text += "; before, " + std::to_string(drops_) + (drops_ == 1 ? " connection was" : " connections were") +
            " dropped before the login (too many at once? see MaxStartups in the server's sshd_config)";
  }
  return Error(Code::kUnreachable, text + command_.afterword);
}

void RshConversation::release_slot() {
  shared_->slots.release(std::exchange(ticket_, 0));
  shared_->loop.cancel(std::exchange(slot_timer_, 0));
}

void RshConversation::release() {
  shared_->resolver.cancel(lookup_);
  shared_->loop.cancel(lookup_timer_);
  shared_->loop.cancel(timer_);
  shared_->loop.cancel(backoff_);
  release_slot();
  process_.reset();
}

void RshConversation::finish(const Error& why) {
  if (stage_ == Stage::kOver) {
    return;
  }
  stage_ = Stage::kOver;
  release();
  sink_.on_closed(why);
}

}  // namespace hvd::launch
