// RelayHub holds the commands that an agent runs for the launcher, each to carry bytes to another node. They make this
// node an inner one of the tree by which the nodes of a large job are reached (messages.h: Relay...).
//
// They live as long as the connection to the launcher. When that is gone they end, and the agents behind them wait to
// be reached again.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/relayed_command.h"
#include "launcher/wire/messages.h"
#include "runtime/base/frame.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class RelayHub {
 public:
  struct Sink {
    std::function<void(AgentMessage type, std::string_view body)> send;
    // The last of its commands has ended. It is never called from inside a call to the hub.
    std::function<void()> on_idle;
  };

  // `environment` is the environment of the commands.
  RelayHub(EventLoop& loop, std::vector<std::string> environment, Sink sink)
      : loop_(loop), environment_(std::move(environment)), sink_(std::move(sink)) {}

  Result<void> on_frame(const Frame& frame);
  // A child of this process was reaped. Returns false when it was not one of the hub's.
  bool on_exited(pid_t pid, const ExitStatus& status);
  [[nodiscard]] bool owns(pid_t pid) const;
  [[nodiscard]] bool is_idle() const { return commands_.empty(); }
  // The launcher has let their agents go: each command gets the end of its input, and is ended if it does not end by
  // itself in a moment.
  void let_go();
  // Ends all commands, since nobody listens to them any more.
  void end_all();

 private:
  void start(const RelayStartMessage& message);
  // Returns this program's own executable, for a node that lacks it.
  const std::string& own_image();
  void forget_exited(std::uint32_t number);

  // constant after construction
  EventLoop& loop_;
  const std::vector<std::string> environment_;
  const Sink sink_;
  // loop only
  std::string image_;  // read at the first use, one for all commands
  std::map<std::uint32_t, std::unique_ptr<RelayedCommand>> commands_;
  std::uint32_t next_ = 0;  // the least number that has not been used
};

}  // namespace hvd::launch
