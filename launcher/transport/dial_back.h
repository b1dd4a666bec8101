// The dial-back transport serves agents that somebody else starts (an engine, launcher/engines/engine.h): they call the
// launcher. An agent is known by the first of its ranks. Before any other byte, both ends prove that they know the
// secret (runtime/rendezvous/handshake.h). After that its stream is like any other, but encrypted (record.h), since it
// does not run inside SSH.
//
// The transport listens until every agent that was asked for has called, since an agent whose connection breaks cannot
// come back; or, with take_all(), for as long as it lives. Every other caller costs one log line for its address. It is
// a warning, unless the caller leaves without a word; callers beyond the limit share one line. An accepted connection
// has a deadline, is read no further than a claim, and delays no other. Thread: loop only. The transport outlives its
// streams; the EventLoop and the Log outlive it.
#pragma once

#include <cstdint>
#include <functional>
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
#include "runtime/io/accept_watch.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {

class DialBackStream;

// At most so many callers that have not proven themselves are kept at the same time.
inline constexpr std::size_t kMostCallers = 256;

struct DialBackOptions {
  // Makes options with a fresh secret.
  static Result<DialBackOptions> make(bool is_local);
  DialBackOptions(const JobSecret& call_secret, KeyPair call_pair) : secret(call_secret), pair(std::move(call_pair)) {}

  // Returns what agents are to be given.
  [[nodiscard]] CallKey key() const { return {secret, pair.share()}; }

  JobSecret secret{};
  KeyPair pair;           // of the launcher, for all of its calls
  int port = 0;           // where it listens; 0: any that is free
  bool is_local = false;  // every agent is on this machine: listens on loopback only, else on every interface
  Duration patience = std::chrono::seconds(10);  // for a caller to prove itself
  std::size_t most_callers = kMostCallers;       // then the oldest makes room
  std::string lost_advice{};  // "; kubectl ...": what may tell why a connection to an agent is over; may be empty
};

class DialBack final : public Transport {
 public:
  static Result<std::unique_ptr<DialBack>> listen(EventLoop& loop, const DialBackOptions& options, Log& log);
  ~DialBack() override;
  DialBack(const DialBack&) = delete;
  DialBack& operator=(const DialBack&) = delete;

  // Waits for the agent whose first rank is target.rank.
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override;
  // From now on whoever proves itself is taken, whatever number it names, until stop(). `seat` opens a stream for it,
  // and returns the rank of that stream.
  void take_all(std::function<int()> seat) { seat_ = std::move(seat); }
  // Takes no more calls.
  void stop();
  // Returns what agents must know to call.
  [[nodiscard]] CallPlace place() const { return {own_network_stack(), addresses_}; }
  // Returns where agents may call: "10.0.0.1:4711".
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }
  // Says whether anybody may still call.
  [[nodiscard]] bool is_listening() const { return !listeners_.empty(); }
  // Returns the number of connections that have not proven themselves.
  [[nodiscard]] std::size_t callers() const { return callers_.size(); }

 private:
  friend class DialBackStream;
  struct Listener {
    Fd fd;
    std::unique_ptr<AcceptWatch> accepting;
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
  void on_connection(Fd connection);
  Result<void> greet(Fd fd);
  void on_readable(std::uint64_t number);
  // Returns the caller's claim once it is whole and proven.
  Result<std::optional<LinkClaim>> hear(Caller& caller);
  Result<void> seat(Caller& caller, const LinkClaim& claim);
  // Forgets a stream that no longer waits for its agent.
  void give_up(const DialBackStream& stream, int rank);
  void drop(std::uint64_t number, LogLevel level, const std::string& why);
  // Returns `level`, or a lower one when many strangers were already named.
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
  bool has_told_trouble_ = false;
  std::vector<std::string> addresses_;
  std::map<std::uint64_t, Caller> callers_;  // by number, so the first is the oldest
  std::uint64_t next_caller_ = 1;
  std::map<int, DialBackStream*> waiting_;  // by rank; not owned
  std::function<int()> seat_;               // empty: only those that are waited for are taken
  std::set<std::string> told_strangers_;    // addresses, without ports
  std::uint64_t untold_strangers_ = 0;
};

}  // namespace hvd::launch
