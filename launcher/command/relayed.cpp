#include "launcher/command/relayed.h"

#include <utility>

#include "runtime/io/scope.h"

namespace hvd::launch {
namespace {

// When a node and its relay are both out of reach, the relay is waited for so long before the node is tried directly.
// Then the tree stays as it was, and the launcher need not connect to all nodes at once.
constexpr Duration kRelayTime = std::chrono::seconds(5);

}  // namespace

// The stages are: waiting for the relay -> through the relay -> direct, when that failed before it was open.
class RelayedStream final : public Stream, private StreamSink {
 public:
  RelayedStream(RelayedTransport& way, NodeTarget target, StreamSink& sink)
      : way_(way), target_(std::move(target)), sink_(sink) {}

  ~RelayedStream() override { stop_waiting(); }
  RelayedStream(const RelayedStream&) = delete;
  RelayedStream& operator=(const RelayedStream&) = delete;

  void begin() {
    const auto state = way_.relay_.state();
    if (way_.shared_->is_off || way_.has_failed_ || state == Relay::State::kGone) {
      way_.has_failed_ = false;  // the next time it may be tried again
      return go_directly();
    }
    if (state == Relay::State::kUp) {
      return go_through_relay();
    }
    ticket_ = way_.relay_.watch([this] { on_relay_changed(); });
    if (way_.was_open_) {
      timer_ = way_.loop_.after(kRelayTime, [this] {
        stop_waiting();
        go_directly();
      });
    }
  }

  void write(std::string bytes) override {
    if (inner_ != nullptr) {
      inner_->write(std::move(bytes));
    } else {
      early_ += bytes;
    }
  }

  void close_input() override {
    if (inner_ != nullptr) {
      return inner_->close_input();
    }
    stop_waiting();
    scope_.post([this] { sink_.on_closed(Error(kAgentEnded, target_.host + ": not tried")); });
  }

 private:
  void on_relay_changed() {
    const auto state = way_.relay_.state();
    if (state == Relay::State::kUp) {
      stop_waiting();
      if (way_.shared_->is_off) {
        go_directly();
      } else {
        go_through_relay();
      }
    } else if (state == Relay::State::kGone) {
      stop_waiting();
      go_directly();
    }
  }

  void stop_waiting() {
    way_.relay_.unwatch(std::exchange(ticket_, 0));
    way_.loop_.cancel(std::exchange(timer_, 0));
  }

  void go_through_relay() {
    auto command = way_.shared_->command_for(target_);
    if (!command.ok()) {
      return go_directly();  // where the same is told
    }
    command.value().label += " from " + way_.relay_.host();
    command.value().start = [relay = &way_.relay_](const std::vector<std::string>& argv,
                                                   ByteProcess::Handlers handlers) {
      return relay->start(argv, std::move(handlers));
    };
    is_relayed_ = true;
    StreamSink& sink = *this;
    set_inner(std::make_unique<RshStream>(
        std::make_shared<RshConversation>(way_.shared_->rsh, std::move(command).value(), sink)));
  }

  void go_directly() {
    is_relayed_ = false;
    set_inner(way_.direct_.open(target_, *this));
  }

  void set_inner(std::unique_ptr<Stream> inner) {
    inner_ = std::move(inner);
    if (!early_.empty()) {
      inner_->write(std::exchange(early_, ""));
    }
  }

  void on_open(const Opened& opened) override {
    is_open_ = true;
    way_.was_open_ = true;
    sink_.on_open(opened);
  }
  void on_progress(const std::string& what) override { sink_.on_progress(what); }
  void on_notice(const std::string& what) override { sink_.on_notice(what); }
  void on_bytes(Bytes bytes) override { sink_.on_bytes(bytes); }

  void on_closed(const Error& why) override {
    if (is_open_ || !is_relayed_) {
      return sink_.on_closed(why);
    }
    if (way_.was_open_) {
      way_.has_failed_ = true;
      return sink_.on_closed(why);  // a session that returns tries again, and then directly
    }
    if (!std::exchange(way_.shared_->is_off, true)) {
      sink_.on_notice("cannot be reached from " + way_.relay_.host() + " (" + why.message() +
                      "); all that is left is reached from here, more connections than --fanout says");
    }
    go_directly();
  }

  RelayedTransport& way_;
  const NodeTarget target_;
  StreamSink& sink_;
  Relay::Ticket ticket_ = 0;
  TimerId timer_ = 0;
  std::unique_ptr<Stream> inner_;  // null: waiting for the relay
  std::string early_;              // written before there is one
  bool is_relayed_ = false;
  bool is_open_ = false;
  Scope scope_{way_.loop_};
};

std::unique_ptr<Stream> RelayedTransport::open(const NodeTarget& target, StreamSink& sink) {
  auto stream = std::make_unique<RelayedStream>(*this, target, sink);
  stream->begin();
  return stream;
}

}  // namespace hvd::launch
