// HeldAgent is the stream of one agent that calls, from the moment it connects. Its bytes are kept until a session
// takes the stream over: where the agent's ranks belong is known only from its first message, Ready.
//
// Thread: loop only. It outlives the Stream that it has handed over; the transport and the EventLoop outlive it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"
#include "runtime/base/frame.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class HeldAgent final : private StreamSink {
 public:
  // Called from the loop, and no more once the stream was handed over. They must not destroy this.
  struct Handlers {
    std::function<void()> on_ready;
    // The stream has ended, or what came is no Ready.
    std::function<void(const Error& why)> on_lost;
  };

  // `rank`: by which `calls` knows the agent.
  HeldAgent(EventLoop& loop, Transport& calls, int rank, Handlers handlers);

  [[nodiscard]] const std::optional<ReadyMessage>& ready() const { return ready_; }
  [[nodiscard]] const Opened& opened() const { return opened_; }
  // Passes to `sink`, from the loop, the bytes that have come so far and then all that come.
  std::unique_ptr<Stream> hand_to(StreamSink& sink);
  // Says so to the agent, which then ends; on_lost follows.
  void refuse(const ByeMessage& bye);
  [[nodiscard]] bool is_refused() const { return is_refused_; }

 private:
  class Handed;

  void on_open(const Opened& opened) override { opened_ = opened; }
  void on_progress(const std::string&) override {}
  void on_notice(const std::string&) override {}
  void on_bytes(Bytes bytes) override;
  void on_closed(const Error& why) override;
  void lose(const Error& why);
  void replay();
  // The session has closed the stream.
  void let_go();

  Handlers handlers_;
  StreamSink* sink_ = nullptr;  // the session's, once the stream was handed over
  bool has_replayed_ = false;
  bool is_refused_ = false;
  Opened opened_;
  std::string kept_;
  FrameDecoder decoder_{kAgentFrames};
  std::optional<ReadyMessage> ready_;
  std::optional<Error> closed_;
  Scope scope_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace hvd::launch
