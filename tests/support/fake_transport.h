// FakeTransport: a way to nodes that are not there. Behind each of its streams is a FakeNode, an agent that speaks the
// messages of launcher/wire and has neither processes nor a socket. A test says how the node behaves and what its ranks
// do; what was said to it can be read afterwards.
//
// Thread: loop only. The transport outlives the streams that it has opened.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"
#include "runtime/base/frame.h"
#include "runtime/io/event_loop.h"

namespace hvd::test {

using launch::AgentMessage;
using launch::ExitStatus;
using launch::StreamId;

// Bytes need this long from one end to the other.
inline constexpr Duration kWay = std::chrono::milliseconds(1);

constexpr ExitStatus exited(int code) {
  return {ExitStatus::Kind::kExited, code};
}
constexpr ExitStatus killed(int signo) {
  return {ExitStatus::Kind::kSignalled, signo};
}

class FakeNode {
 public:
  FakeNode(EventLoop& loop, const std::string& host, int number) : loop_(loop) {
    const std::string place = std::to_string(number);
    opened.node_address = "10.0.0." + place;
    opened.launcher_address = "10.0.0.100";
    ready.version = "1";
    ready.host_name = host;
    ready.pid = 100 * number;
    ready.reserved_port = 40'000;
    ready.socket_path = "/scratch/agent";
    ready.resume_path = "/scratch/resume";
    ready.networks = {{"eth0", "10.0.0." + place + "/24"}};
    ready.machine = host;
  }

  // ---- how it behaves; may be changed while the job runs ----
  bool is_silent = false;          // an attempt to open a stream never ends
  std::optional<Error> refusal{};  // an attempt to open a stream ends so
  launch::Opened opened;
  launch::ReadyMessage ready;
  std::string banner{};                                       // comes before its first message
  std::optional<launch::StartFailedMessage> start_failure{};  // in place of starting its ranks
  bool obeys = true;                                          // its ranks end when they are told to
  bool says_done = true;                                      // when its last rank has ended
  bool ends_on_bye = true;                                    // the stream ends when the launcher has closed its input
  std::string lost_session{};                                 // not empty: it refuses to resume, and says this
  std::function<void()> on_started{};                         // all of its ranks run

  // ---- what it was told ----
  [[nodiscard]] std::size_t count(AgentMessage type) const {
    return static_cast<std::size_t>(
        std::count_if(told.begin(), told.end(), [type](const auto& m) { return m.first == type; }));
  }
  [[nodiscard]] const std::string& body(AgentMessage type, std::size_t number = 0) const {
    for (const auto& [told_type, told_body] : told) {
      if (told_type == type && number-- == 0) {
        return told_body;
      }
    }
    FAIL("it was not told that");
    return told.front().second;
  }
  [[nodiscard]] launch::StopMessage stop(std::size_t number = 0) const {
    return launch::StopMessage::decode(body(AgentMessage::kStop, number)).value();
  }
  std::vector<std::pair<AgentMessage, std::string>> told;  // without Heartbeat and Ack
  int attempts = 0;                                        // streams that were opened to it
  std::map<int, int> ranks;                                // rank and pid of those that run

  // ---- what happens there ----
  void print(int rank, std::string_view text, StreamId stream = StreamId::kStdout) {
    say_frame(launch::output_frame(rank, stream, text));
  }
  // Its runtime says hello; `waits`: to be taken into a generation after this one.
  void join(int rank, std::uint32_t generation = 0, bool waits = false) {
    say(AgentMessage::kJoined, launch::JoinedMessage{rank, generation, waits}.encode());
  }
  void fail(int rank, FailureNews news) {
    say(AgentMessage::kFailing, launch::FailingMessage{rank, std::move(news)}.encode());
  }
  void exchange(int rank, const std::string& key, const std::string& value, std::uint32_t generation = 0) {
    say(AgentMessage::kExchange, launch::ExchangeMessage{rank, key, value, generation}.encode());
  }
  void exit(int rank, const ExitStatus& status) {
    if (ranks.erase(rank) == 0) {
      return;
    }
    say_frame(launch::output_end_frame(rank, StreamId::kStdout));
    say_frame(launch::output_end_frame(rank, StreamId::kStderr));
    say(AgentMessage::kExited, launch::ExitedMessage{rank, status}.encode());
    may_return_ = may_restart_ && !status.is_success();
    say_done_if_over();
  }
  void exit_all(const ExitStatus& status) {
    while (!ranks.empty()) {
      exit(ranks.begin()->first, status);
    }
  }
  // Says a message that the session counts, and says again over a new connection.
  void say(AgentMessage type, std::string_view body = {}) { say_frame(launch::agent_frame(type, body)); }
  void say_raw(std::string bytes) {
    if (link_) {
      loop_.after(kWay, [link = link_, bytes = std::move(bytes)] {
        if (link->sink != nullptr && !link->is_cut) {
          link->sink->on_bytes(as_bytes(bytes));
        }
      });
    }
  }
  // The connection breaks. What is under way is lost.
  void cut(Code code = Code::kLostPeer, const std::string& why = "connection reset by peer") {
    if (link_) {
      link_->is_cut = true;
      close(code, why);
    }
  }
  // The connection ends after all that was said. As every transport does, this one names the host.
  void close(Code code, const std::string& what) {
    const Error why(code, ready.host_name + ": " + what);
    if (const auto link = std::exchange(link_, nullptr)) {
      loop_.after(kWay, [link, why] {
        link->is_cut = true;
        if (link->sink != nullptr) {
          std::exchange(link->sink, nullptr)->on_closed(why);
        }
      });
    }
  }
  // The agent dies with its ranks, and the stream tells.
  void die() {
    ranks.clear();
    cut(launch::kAgentEnded, "its agent was killed by signal 9 (SIGKILL)");
  }
  // Nothing comes through any more, and nobody tells.
  void fall_silent() {
    if (const auto link = std::exchange(link_, nullptr)) {
      link->is_cut = true;
    }
  }

 private:
  friend class FakeTransport;
  // One connection. The stream may be gone, and then it has no sink.
  struct Link {
    launch::StreamSink* sink = nullptr;
    bool is_cut = false;
    FrameDecoder decoder{launch::kAgentFrames};
  };
  class FakeStream final : public launch::Stream {
   public:
    FakeStream(FakeNode& node, std::shared_ptr<Link> link) : node_(node), link_(std::move(link)) {}
    ~FakeStream() override {
      link_->sink = nullptr;
      link_->is_cut = true;
    }
    FakeStream(const FakeStream&) = delete;
    FakeStream& operator=(const FakeStream&) = delete;
    void write(std::string bytes) override {
      node_.loop_.after(kWay, [&node = node_, link = link_, bytes = std::move(bytes)] { node.hear(*link, bytes); });
    }
    void close_input() override {
      node_.loop_.after(kWay, [&node = node_, link = link_] { node.hear_end(link); });
    }

   private:
    FakeNode& node_;
    const std::shared_ptr<Link> link_;
  };

  std::unique_ptr<launch::Stream> open(launch::StreamSink& sink) {
    ++attempts;
    auto link = std::make_shared<Link>();
    link->sink = &sink;
    if (refusal) {
      loop_.after(kWay, [link, why = *refusal] {
        if (link->sink != nullptr) {
          std::exchange(link->sink, nullptr)->on_closed(why);
        }
      });
    } else if (!is_silent) {
      loop_.after(kWay, [this, link] { answer(link); });
    }
    return std::make_unique<FakeStream>(*this, link);
  }

  void answer(const std::shared_ptr<Link>& link) {
    if (link->sink == nullptr) {
      return;
    }
    link_ = link;
    link->sink->on_open(opened);
    say_raw(banner + launch::agent_frame(AgentMessage::kReady, ready.encode()));
  }

  void say_frame(std::string frame) {
    said_.push_back(frame);
    say_raw(std::move(frame));
  }

  void hear(Link& link, const std::string& bytes) {
    if (link.is_cut) {
      return;
    }
    link.decoder.feed(as_bytes(bytes));
    for (;;) {
      const auto next = link.decoder.next();
      REQUIRE(next.ok());
      if (!next.value() || link.is_cut) {
        return;
      }
      hear_frame(static_cast<AgentMessage>(next.value()->type), next.value()->body);
    }
  }

  void hear_frame(AgentMessage type, const std::string& body) {
    heard_ += launch::is_numbered(type) ? 1U : 0U;
    if (type == AgentMessage::kHeartbeat) {
      return say_raw(launch::agent_frame(type));
    }
    if (type == AgentMessage::kAck) {
      return;
    }
    told.emplace_back(type, body);
    if (type == AgentMessage::kResume) {
      resume(launch::ResumeMessage::decode(body).value());
    } else if (type == AgentMessage::kStart) {
      start(launch::StartMessage::decode(body).value());
    } else if (type == AgentMessage::kGeneration) {
      const auto restart = launch::GenerationMessage::decode(body).value();
      if (restart.start) {
        start(*restart.start);
      }
    } else if (type == AgentMessage::kStop) {
      end_ranks(launch::StopMessage::decode(body).value());
    } else if (type == AgentMessage::kEndRank) {
      const auto [rank, signo] = launch::decode_two_numbers(body).value();
      exit(rank, killed(signo));
    } else if (type == AgentMessage::kSuspend) {
      say(AgentMessage::kSuspended);
    }
  }

  void hear_end(const std::shared_ptr<Link>& link) {
    if (ends_on_bye && !link->is_cut && link == link_) {
      close(launch::kAgentEnded, "its agent has ended");
    }
  }

  void resume(const launch::ResumeMessage& resume) {
    if (!lost_session.empty()) {
      return say_raw(launch::agent_frame(AgentMessage::kNoResume, lost_session));
    }
    say_raw(launch::agent_frame(AgentMessage::kResumed, launch::count_body(heard_)));
    for (std::size_t number = resume.received; number < said_.size(); ++number) {
      say_raw(said_[number]);
    }
  }

  void start(const launch::StartMessage& start) {
    may_restart_ = may_restart_ || start.may_restart;
    may_return_ = false;
    if (start_failure) {
      return say(AgentMessage::kStartFailed, start_failure->encode());
    }
    for (const auto& rank : start.ranks) {
      ranks[rank.rank] = next_pid_++;
      say(AgentMessage::kStarted, launch::number_body(rank.rank, ranks[rank.rank]));
    }
    if (on_started) {
      on_started();
    }
  }

  void end_ranks(const launch::StopMessage& stop) {
    may_restart_ = false;
    may_return_ = false;
    const std::map<int, int> running = obeys ? ranks : std::map<int, int>();
    for (const auto& [rank, pid] : running) {
      if (stop.signal == SIGKILL || std::find(stop.spared.begin(), stop.spared.end(), rank) == stop.spared.end()) {
        exit(rank, killed(stop.signal));
      }
    }
    if (obeys && stop.signal != SIGKILL) {
      loop_.after(std::chrono::milliseconds(stop.grace_ms), [this] { exit_all(killed(SIGKILL)); });
    }
    if (obeys) {
      say_done_if_over();
    }
  }

  void say_done_if_over() {
    if (says_done && ranks.empty() && !may_return_ && !std::exchange(is_done_, true)) {
      say(AgentMessage::kDone);
    }
  }

  EventLoop& loop_;
  std::shared_ptr<Link> link_;     // null: no connection
  std::vector<std::string> said_;  // the frames that the session counts
  std::uint64_t heard_ = 0;        // likewise of the launcher
  int next_pid_ = 1000;
  bool may_restart_ = false;
  bool may_return_ = false;  // its last rank has failed, and the launcher may start it again
  bool is_done_ = false;
};

class FakeTransport final : public launch::Transport {
 public:
  explicit FakeTransport(EventLoop& loop) : loop_(loop) {}

  // The node of this name; made when it is named first.
  FakeNode& node(const std::string& host) {
    auto& node = nodes_[host];
    if (!node) {
      node = std::make_unique<FakeNode>(loop_, host, static_cast<int>(nodes_.size()));
    }
    return *node;
  }
  std::unique_ptr<launch::Stream> open(const launch::NodeTarget& target, launch::StreamSink& sink) override {
    return node(target.host).open(sink);
  }
  [[nodiscard]] std::optional<TimePoint> pushed_at() const override { return pushed; }

  std::optional<TimePoint> pushed;

 private:
  EventLoop& loop_;
  std::map<std::string, std::unique_ptr<FakeNode>> nodes_;
};

}  // namespace hvd::test
