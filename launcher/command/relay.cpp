#include "launcher/command/relay.h"

#include <utility>

namespace hvd::launch {

namespace {

constexpr std::size_t kPushBytes = 64 * 1024;  // of one message

}  // namespace

class RelayedProcess final : public ByteProcess {
 public:
  RelayedProcess(Relay& relay, std::uint32_t number, Handlers handlers)
      : handlers_(std::move(handlers)), relay_(relay), number_(number) {}

  ~RelayedProcess() override {
    if (relay_.processes_.erase(number_) != 0) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count();
      relay_.send_(AgentMessage::kRelayEnd, relay_number_body(number_, static_cast<std::uint32_t>(ms)));
    }
  }
  RelayedProcess(const RelayedProcess&) = delete;
  RelayedProcess& operator=(const RelayedProcess&) = delete;

  void write(std::string bytes) override { send(AgentMessage::kRelayInput, bytes); }
  // The relaying agent sends its own executable where that is the image.
  void push(const AgentImage& image) override {
    if (image.machine == relay_.processor_) {
      return send(AgentMessage::kRelayImage);
    }
    for (std::size_t at = 0; at < image.bytes.size(); at += kPushBytes) {
      send(AgentMessage::kRelayInput, std::string_view(image.bytes).substr(at, kPushBytes));
    }
  }
  void close_input() override { send(AgentMessage::kRelayInputEnd); }
  void set_patience(Duration patience) override { patience_ = patience; }

  const Handlers handlers_;
  std::size_t unpaid_ = 0;  // bytes that have come and are not granted back yet

 private:
  void send(AgentMessage type, std::string_view bytes = {}) {
    if (relay_.processes_.contains(number_)) {
      relay_.send_(type, relay_body(number_, bytes));
    }
  }

  Relay& relay_;
  const std::uint32_t number_;
  Duration patience_ = std::chrono::seconds(2);
};

void Relay::change(State state) {
  state_ = state;
  // This is posted, because we are called in the middle of what happens to the node itself.
  scope_.post([this] { tell_change(); });
}

void Relay::tell_change() {
  while (state_ != State::kUp && !processes_.empty()) {
    end(processes_.begin()->first, std::nullopt, "broke with the connection to " + host_ + ", which relays it");
  }
  for (auto [ticket, on_change] : std::map(watchers_)) {
    if (watchers_.contains(ticket)) {
      on_change();
    }
  }
}

Relay::Ticket Relay::watch(std::function<void()> on_change) {
  watchers_.emplace(next_ticket_, std::move(on_change));
  return next_ticket_++;
}

Result<std::unique_ptr<ByteProcess>> Relay::start(const std::vector<std::string>& argv,
                                                  ByteProcess::Handlers handlers) {
  if (state_ != State::kUp) {
    return Error(Code::kUnreachable, host_ + ", which relays to it, is out of reach");
  }
  const std::uint32_t number = next_number_++;
  auto process = std::make_unique<RelayedProcess>(*this, number, std::move(handlers));
  processes_.emplace(number, process.get());
  send_(AgentMessage::kRelayStart, RelayStartMessage{number, argv}.encode());
  return std::unique_ptr<ByteProcess>(std::move(process));
}

Result<void> Relay::on_frame(const Frame& frame) {
  const auto type = static_cast<AgentMessage>(frame.type);
  if (type == AgentMessage::kRelayOver) {
    HVD_TRY_ASSIGN(const RelayOverMessage over, RelayOverMessage::decode(frame.body));
    end(over.command, over.status, over.how);
    return {};
  }
  if (type != AgentMessage::kRelayOutput && type != AgentMessage::kRelayErrors) {
    return Error(Code::kProtocol,
                 "its agent sent a message of type " + std::to_string(frame.type) + ", which is not for a launcher");
  }
  HVD_TRY_ASSIGN(const RelayMessage message, RelayMessage::decode(frame.body));
  take(type, message);
  return {};
}

void Relay::take(AgentMessage type, const RelayMessage& message) {
  const auto found = processes_.find(message.command);
  if (found == processes_.end()) {
    return;  // it was ended while this was on its way
  }
  const ByteProcess::Handlers handlers = found->second->handlers_;  // a copy: they may destroy it
  if (type == AgentMessage::kRelayOutput) {
    handlers.on_output(as_bytes(message.bytes));
  } else {
    handlers.on_errors(message.bytes);
  }
  pay_back(message.command, message.bytes.size());
}

void Relay::pay_back(std::uint32_t number, std::size_t bytes) {
  const auto found = processes_.find(number);
  if (found == processes_.end()) {
    return;
  }
  std::size_t& unpaid = found->second->unpaid_;
  unpaid += bytes;
  if (unpaid >= kRelayWindow / 4) {
    send_(AgentMessage::kRelayCredit, relay_number_body(number, static_cast<std::uint32_t>(std::exchange(unpaid, 0))));
  }
}

void Relay::end(std::uint32_t number, const std::optional<ExitStatus>& status, const std::string& how) {
  const auto found = processes_.find(number);
  if (found == processes_.end()) {
    return;
  }
  const auto on_over = found->second->handlers_.on_over;  // a copy: it may destroy the process
  processes_.erase(found);
  on_over(status, how);
}

}  // namespace hvd::launch
