// The relayed transport reaches one node through another one of the job, whose agent runs the command that carries the
// bytes. So the launcher has few connections itself, and the nodes share the work of making the others.
//
// The nodes may have no key for each other, or no such command. Then the node is reached as if there were no tree, and
// a notice says so once. So every error that ends a job comes from the direct way.
// Thread: loop only. The EventLoop, the Log, the Relay and the direct transport outlive it; it outlives its streams.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/command/relay.h"
#include "launcher/command/rsh_stream.h"
#include "launcher/transport/transport.h"

namespace hvd::launch {

// RelayedShared is what all relayed nodes of a job share.
struct RelayedShared {
  std::shared_ptr<RshShared> rsh;
  // Returns what the relaying node executes to get to the target.
  std::function<Result<RshCommand>(const NodeTarget&)> command_for;
  bool is_off = false;  // it did not work once: who has not begun goes directly
};

class RelayedTransport final : public Transport {
 public:
  RelayedTransport(EventLoop& loop, Relay& relay, Transport& direct, std::shared_ptr<RelayedShared> shared)
      : loop_(loop), relay_(relay), direct_(direct), shared_(std::move(shared)) {}

  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override;

 private:
  friend class RelayedStream;

  // constant after construction
  EventLoop& loop_;
  Relay& relay_;
  Transport& direct_;
  const std::shared_ptr<RelayedShared> shared_;
  // loop only
  bool was_open_ = false;    // some stream to this node was
  bool has_failed_ = false;  // the last attempt through the relay has
};

}  // namespace hvd::launch
