#include "launcher/engines/held_agent.h"

#include <utility>

namespace hvd::launch {
namespace {

// An agent says no more than Ready before it hears of us, and Ready has a few lists of the node's parts.
constexpr std::size_t kMostKept = 16U << 20U;

}  // namespace

// Handed is the Stream that a session owns.
class HeldAgent::Handed final : public Stream {
 public:
  explicit Handed(HeldAgent& held) : held_(held) {}
  ~Handed() override { held_.let_go(); }
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;
  void write(std::string bytes) override { held_.stream_->write(std::move(bytes)); }
  void close_input() override { held_.stream_->close_input(); }

 private:
  HeldAgent& held_;
};

HeldAgent::HeldAgent(EventLoop& loop, Transport& calls, int rank, Handlers handlers)
    : handlers_(std::move(handlers)), scope_(loop), stream_(calls.open(NodeTarget{"", "", 0, rank}, *this)) {}

std::unique_ptr<Stream> HeldAgent::hand_to(StreamSink& sink) {
  sink_ = &sink;
  scope_.post([this] {
    if (sink_ != nullptr) {
      replay();
    }
  });
  return std::make_unique<Handed>(*this);
}

void HeldAgent::let_go() {
  sink_ = nullptr;
  stream_.reset();
}

void HeldAgent::refuse(const ByeMessage& bye) {
  is_refused_ = true;
  stream_->write(agent_frame(AgentMessage::kBye, bye.encode()));
  stream_->close_input();
}

void HeldAgent::on_bytes(Bytes bytes) {
  if (has_replayed_) {
    sink_->on_bytes(bytes);
    return;
  }
  if (closed_) {
    return;
  }
  kept_ += as_text(bytes);
  if (kept_.size() > kMostKept) {
    return lose(Error(Code::kProtocol, "it says more than an agent does that waits"));
  }
  if (ready_) {
    return;
  }
  decoder_.feed(bytes);
  auto frame = decoder_.next();
  if (frame.ok() && !frame.value()) {
    return;
  }
  if (frame.ok() && frame.value()->type != static_cast<std::uint16_t>(AgentMessage::kReady)) {
    frame = Error(Code::kProtocol, "its first message is of type " + std::to_string(frame.value()->type));
  }
  auto ready = frame.ok() ? ReadyMessage::decode(frame.value()->body) : Result<ReadyMessage>(frame.error());
  if (!ready.ok()) {
    return lose(ready.error());
  }
  ready_ = std::move(ready).value();
  handlers_.on_ready();
}

void HeldAgent::on_closed(const Error& why) {
  if (has_replayed_) {
    sink_->on_closed(why);
  } else if (!closed_) {
    lose(why);
  }
}

void HeldAgent::lose(const Error& why) {
  closed_ = why;
  if (sink_ == nullptr) {
    handlers_.on_lost(why);
  }
}

void HeldAgent::replay() {
  has_replayed_ = true;
  sink_->on_open(opened_);
  if (!kept_.empty()) {
    sink_->on_bytes(as_bytes(std::exchange(kept_, {})));
  }
  if (closed_ && sink_ != nullptr) {
    sink_->on_closed(*closed_);
  }
}

}  // namespace hvd::launch
