#include "launcher/agent/relay_hub.h"

#include <algorithm>
#include <utility>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// The agents behind the commands need this time to end, for they wait for a farewell of their own.
constexpr auto kFarewell = std::chrono::seconds(2);
// A command may have become an agent, which gives its ranks 5 s, and needs a moment for the processes they left.
constexpr Duration kEndPatience = std::chrono::seconds(8);

}  // namespace

Result<void> RelayHub::on_frame(const Frame& frame) {
  const auto type = static_cast<AgentMessage>(frame.type);
  if (type == AgentMessage::kRelayStart) {
    HVD_TRY_ASSIGN(const RelayStartMessage message, RelayStartMessage::decode(frame.body));
    if (message.command < next_) {
      return Error(Code::kProtocol, "the launcher has used a relayed command's number twice");
    }
    next_ = message.command + 1;
    start(message);
    return {};
  }
  HVD_TRY_ASSIGN(const RelayMessage message, RelayMessage::decode(frame.body));
  const auto found = commands_.find(message.command);
  if (found == commands_.end()) {
    return {};  // it has ended while this was on its way
  }
  RelayedCommand& command = *found->second;
  switch (type) {
    case AgentMessage::kRelayInput:
      command.write(message.bytes);
      return {};
    case AgentMessage::kRelayImage:
      command.push(own_image());
      return {};
    case AgentMessage::kRelayInputEnd:
      command.close_input();
      return {};
    case AgentMessage::kRelayEnd: {
      HVD_TRY_ASSIGN(const std::uint32_t ms, decode_relay_number(message));
      command.end(std::chrono::milliseconds(ms));
      return {};
    }
    case AgentMessage::kRelayCredit: {
      HVD_TRY_ASSIGN(const std::uint32_t bytes, decode_relay_number(message));
      command.grant(bytes);
      return {};
    }
    default:
      return Error(Code::kProtocol,
                   "the launcher sent a message of type " + std::to_string(frame.type) + ", which is not for an agent");
  }
}

// If it cannot be read, the shell that waits for it gets too few bytes and reports that.
const std::string& RelayHub::own_image() {
  if (image_.empty()) {
    image_ = text_of_file("/proc/self/exe");
  }
  return image_;
}

void RelayHub::start(const RelayStartMessage& message) {
  const std::uint32_t number = message.command;
  RelayedCommand::Sink sink;
  sink.on_output = [this, number](Child::Stream stream, std::string_view bytes) {
    sink_.send(stream == Child::Stream::kOutput ? AgentMessage::kRelayOutput : AgentMessage::kRelayErrors,
               relay_body(number, bytes));
  };
  sink.on_over = [this, number](const std::optional<ExitStatus>& status, const std::string& how) {
    sink_.send(AgentMessage::kRelayOver, RelayOverMessage{number, status, how}.encode());
    loop_.post([this, number] { forget_exited(number); });
  };
  auto command = RelayedCommand::start(loop_, message.argv, environment_, std::move(sink));
  if (command.ok()) {
    commands_.emplace(number, std::move(command).value());
  } else {
    sink_.send(AgentMessage::kRelayOver,
               RelayOverMessage{number, std::nullopt, "did not start: " + command.error().message()}.encode());
  }
}

// A command whose output is over but which lives on is kept until it has ended.
void RelayHub::forget_exited(std::uint32_t number) {
  const auto found = commands_.find(number);
  if (found == commands_.end()) {
    return;
  }
  if (!found->second->has_exited()) {
    found->second->end(kEndPatience);
    return;
  }
  commands_.erase(found);
  if (commands_.empty()) {
    sink_.on_idle();
  }
}

bool RelayHub::on_exited(pid_t pid, const ExitStatus& status) {
  const auto found =
      std::find_if(commands_.begin(), commands_.end(), [pid](const auto& entry) { return entry.second->pid() == pid; });
  if (found == commands_.end()) {
    return false;
  }
  const bool was_ended = found->second->is_over();
  found->second->mark_exited(status);
  if (was_ended) {
    loop_.post([this, number = found->first] { forget_exited(number); });
  }
  return true;
}

bool RelayHub::owns(pid_t pid) const {
  return std::any_of(commands_.begin(), commands_.end(),
                     [pid](const auto& entry) { return entry.second->pid() == pid && !entry.second->has_exited(); });
}

void RelayHub::let_go() {
  for (const auto& [number, command] : commands_) {
    command->close_input();
  }
  loop_.after(kFarewell, [this] { end_all(); });
}

void RelayHub::end_all() {
  for (const auto& [number, command] : commands_) {
    command->end(kEndPatience);
    if (command->has_exited()) {
      loop_.post([this, n = number] { forget_exited(n); });
    }
  }
}

}  // namespace hvd::launch
