#include "launcher/engines/called_agents.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/frame.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

// Held is one agent's stream from the moment it connects. Its bytes are kept until a session takes it over. They are
// the Ready message and nothing else, since an agent sends no more before it gets Welcome.
class CalledAgents::Held final : public StreamSink {
 public:
  Held(CalledAgents& owner, Transport& dial_back, int partition)
      : owner_(owner), partition_(partition), stream_(dial_back.open(NodeTarget{"", "", 0, partition}, *this)) {}

  // Passes to `sink`, from the loop, the bytes that have come so far and then all that come. Null: the stream is
  // closed.
  void hand_to(StreamSink* sink) {
    sink_ = sink;
    ++handed_;
    if (sink == nullptr) {
      stream_.reset();
      return;
    }
    scope_.post([this, number = handed_] {
      if (number == handed_) {
        replay();
      }
    });
  }
  [[nodiscard]] const std::optional<ReadyMessage>& ready() const { return ready_; }
  [[nodiscard]] Stream& stream() { return *stream_; }

 private:
  void on_open(const Opened& opened) override { opened_ = opened; }
  void on_progress(const std::string&) override {}
  void on_notice(const std::string&) override {}

  void on_bytes(Bytes bytes) override {
    if (has_replayed_) {
      sink_->on_bytes(bytes);
      return;
    }
    kept_ += as_text(bytes);
    if (ready_ || closed_) {
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
      closed_ = ready.error();
      return owner_.on_lost(partition_, *closed_);
    }
    ready_ = std::move(ready).value();
    owner_.on_ready();
  }

  void on_closed(const Error& why) override {
    if (has_replayed_) {
      sink_->on_closed(why);
    } else if (!closed_) {
      closed_ = why;
      owner_.on_lost(partition_, why);
    }
  }

  void replay() {
    has_replayed_ = true;
    sink_->on_open(opened_);
    if (!kept_.empty()) {
      sink_->on_bytes(as_bytes(std::exchange(kept_, {})));
    }
    if (closed_) {
      sink_->on_closed(*closed_);
    }
  }

  CalledAgents& owner_;
  const int partition_;
  StreamSink* sink_ = nullptr;  // the session's, once the stream was handed over
  int handed_ = 0;
  bool has_replayed_ = false;
  Opened opened_;
  std::string kept_;
  FrameDecoder decoder_{kAgentFrames};
  std::optional<ReadyMessage> ready_;
  std::optional<Error> closed_;
  Scope scope_{owner_.loop_};
  std::unique_ptr<Stream> stream_;
};

// Handed is the Stream that a session owns; the Held behind it outlives it.
class CalledAgents::Handed final : public Stream {
 public:
  explicit Handed(Held& held) : held_(held) {}
  ~Handed() override { held_.hand_to(nullptr); }
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;
  void write(std::string bytes) override { held_.stream().write(std::move(bytes)); }
  void close_input() override { held_.stream().close_input(); }

 private:
  Held& held_;
};

CalledAgents::CalledAgents(EventLoop& loop, Transport& dial_back, int count, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {
  for (int partition = 0; partition < count; ++partition) {
    held_.push_back(std::make_unique<Held>(*this, dial_back, partition));
  }
}

CalledAgents::~CalledAgents() = default;

bool CalledAgents::is_complete() const {
  return called_ == static_cast<int>(held_.size());
}

std::vector<ReadyMessage> CalledAgents::facts() const {
  HVD_CHECK(is_complete());
  std::vector<ReadyMessage> facts;
  for (const auto& held : held_) {
    facts.push_back(*held->ready());
  }
  return facts;
}

void CalledAgents::assign(std::vector<int> partition_of_rank) {
  HVD_CHECK(is_complete() && partition_of_rank.size() >= held_.size());
  partition_of_rank_ = std::move(partition_of_rank);
}

std::unique_ptr<Stream> CalledAgents::open(const NodeTarget& target, StreamSink& sink) {
  HVD_CHECK(!partition_of_rank_.empty());
  const int partition = partition_of_rank_.at(static_cast<std::size_t>(target.rank));
  Held& held = *held_[static_cast<std::size_t>(partition)];
  held.hand_to(&sink);
  return std::make_unique<Handed>(held);
}

void CalledAgents::on_ready() {
  ++called_;
  handlers_.on_called(called_);
}

void CalledAgents::on_lost(int partition, const Error& why) {
  handlers_.on_lost(why.with_context("the agent of partition " + std::to_string(partition)));
}

CalledPlacement place_called(const std::vector<ReadyMessage>& facts) {
  struct Machine {
    std::string name;
    std::vector<int> partitions;
  };
  std::vector<Machine> machines;
  std::vector<std::string> known;
  for (std::size_t partition = 0; partition < facts.size(); ++partition) {
    const ReadyMessage& ready = facts[partition];
    const auto found = std::find(known.begin(), known.end(), ready.machine);
    const auto index = static_cast<std::size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(ready.machine);
      machines.push_back(Machine{ready.host_name, {}});
    }
    machines[index].partitions.push_back(static_cast<int>(partition));
  }
  CalledPlacement called;
  HostList hosts;
  for (const Machine& machine : machines) {
    HostSpec host;
    host.name = machine.name;
    host.slots = static_cast<int>(machine.partitions.size());
    hosts.push_back(host);
    called.partition_of_rank.insert(called.partition_of_rank.end(), machine.partitions.begin(),
                                    machine.partitions.end());
  }
  called.placement = place(hosts, 0).value();
  return called;
}

}  // namespace hvd::launch
