// The dial-back transport: agents that somebody else starts (an engine, launcher/engines/engine.h) call the launcher.
// An agent is known by the first of its ranks, and before any other byte both ends prove that they know the secret
// (runtime/rendezvous/handshake.h). After that its stream is like any other, but encrypted (record.h): the agent's way
// here is not inside SSH.
//
// It listens only until every agent that was asked for has called: an agent whose connection breaks cannot come back.
// Whoever else connects costs a log line for his address, a warning unless he leaves without a word, and at last one
// for all that are not told: an accepted connection has a deadline, is read no further than a claim, and none waits for
// another. Thread: loop only. Outlives its streams; the EventLoop and the Log outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/transport/transport.h"
#include "launcher/wire/engine_call.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {

class DialBackStream;

// Callers that have not proven themselves, at the same time.
inline constexpr std::size_t kMostCallers = 256;

struct DialBackOptions {
  // With a secret of their own.
  static Result<DialBackOptions> make(bool is_local);
  DialBackOptions(const JobSecret& call_secret, KeyPair call_pair) : secret(call_secret), pair(std::move(call_pair)) {}

  // What agents are to be given.
  [[nodiscard]] CallKey key() const { return {secret, pair.share()}; }

  JobSecret secret{};
  KeyPair pair;           // of the launcher, for all of its calls
  bool is_local = false;  // every agent is on this machine: listens on loopback only, else on every interface
  Duration patience = std::chrono::seconds(10);  // for a caller to prove itself
  std::size_t most_callers = kMostCallers;       // then the oldest makes room
};

class DialBack final : public Transport {
 public:
  static Result<std::unique_ptr<DialBack>> listen(EventLoop& loop, const DialBackOptions& options, Log& log);
  ~DialBack() override;
  DialBack(const DialBack&) = delete;
  DialBack& operator=(const DialBack&) = delete;

  // Waits for the agent of target.rank.
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override;
  // For agents.
  [[nodiscard]] CallPlace place() const { return {own_network_stack(), addresses_}; }
  // Where they may call: "10.0.0.1:4711".
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }
  // Whether anybody may still call.
  [[nodiscard]] bool is_listening() const { return !listeners_.empty(); }
  // Connections that have not proven themselves.
  [[nodiscard]] std::size_t callers() const { return callers_.size(); }

 private:
  friend class DialBackStream;
  struct Listener {
    Fd fd;
    WatchId watch = 0;
  };
  struct Caller {
    Fd fd;
    SocketAddress address;
    HandshakeAcceptor handshake;
    WatchId watch = 0;
    TimerId timer = 0;
  };

  DialBack(EventLoop& loop, const DialBackOptions& options, Log& log);
  Result<void> listen_at(const SocketAddress& address);
  void on_connection(int listener);
  // No more calls for a moment.
  void pause(const std::string& why);
  Result<void> greet(Fd fd);
  void on_readable(std::uint64_t number);
  // The caller's claim once it is whole and proven.
  Result<std::optional<LinkClaim>> hear(Caller& caller);
  Result<void> seat(Caller& caller, const LinkClaim& claim);
  // The stream waits no more for its agent.
  void give_up(const DialBackStream& stream, int rank);
  void drop(std::uint64_t number, LogLevel level, const std::string& why);
  // `level`, or less for one more of many.
  LogLevel level_for(const SocketAddress& stranger, LogLevel level);
  void sum_up_strangers();
  void forget(std::uint64_t number);
  void stop_listening();

  // constant after construction
  EventLoop& loop_;
  const DialBackOptions options_;
  Log& log_;
  // loop only
  std::vector<Listener> listeners_;
  TimerId retry_timer_ = 0;
  bool has_paused_ = false;
  std::vector<std::string> addresses_;
  std::map<std::uint64_t, Caller> callers_;  // by number, so the first is the oldest
  std::uint64_t next_caller_ = 1;
  std::map<int, DialBackStream*> waiting_;  // by rank; not owned
  std::set<std::string> told_strangers_;    // addresses, without ports
  std::uint64_t untold_strangers_ = 0;
};

}  // namespace hvd::launch
