// Relay is the launcher's end of what one node carries for others: commands that its agent runs there, each a
// ByteProcess here (launcher/agent/relay_hub.h is the other end). relayed.h makes a way to a node of it.
//
// Thread: loop only. Outlives its processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/transport/byte_process.h"
#include "launcher/wire/messages.h"
#include "runtime/base/frame.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class RelayedProcess;

class Relay {
 public:
  enum class State : std::uint8_t {
    kComing,  // its node is being reached
    kUp,
    kAway,  // its connection broke, and is tried again
    kGone   // for good
  };
  using Send = std::function<void(AgentMessage type, std::string_view body)>;
  using Ticket = std::uint64_t;

  // `host` is the relaying node, for messages; `send` speaks to its agent.
  Relay(EventLoop& loop, std::string host, Send send) : loop_(loop), host_(std::move(host)), send_(std::move(send)) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const std::string& host() const { return host_; }
  // Says on which processor the node's agent runs. A node behind it with another one is sent the launcher's image.
  void set_processor(std::string processor) { processor_ = std::move(processor); }
  // Watchers are called from the loop. When the node is not up any more, the end of every process is reported too.
  void change(State state);
  Ticket watch(std::function<void()> on_change);
  void unwatch(Ticket ticket) { watchers_.erase(ticket); }

  // Runs the words on the node; it must be up.
  Result<std::unique_ptr<ByteProcess>> start(const std::vector<std::string>& argv, ByteProcess::Handlers handlers);
  // Takes RelayOutput, RelayErrors and RelayOver from the node's agent.
  Result<void> on_frame(const Frame& frame);

 private:
  friend class RelayedProcess;
  void tell_change();
  void take(AgentMessage type, const RelayMessage& message);
  void pay_back(std::uint32_t number, std::size_t bytes);
  void end(std::uint32_t number, const std::optional<ExitStatus>& status, const std::string& how);

  // constant after construction
  EventLoop& loop_;
  const std::string host_;
  const Send send_;
  // loop only
  State state_ = State::kComing;
  std::string processor_;
  std::map<std::uint32_t, RelayedProcess*> processes_;  // not owned
  std::uint32_t next_number_ = 1;
  std::map<Ticket, std::function<void()>> watchers_;
  Ticket next_ticket_ = 1;
  Scope scope_{loop_};
};

}  // namespace hvd::launch
