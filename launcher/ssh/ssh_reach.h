// SshReach goes from a host's name to a session that is logged in: ssh -G, name resolution, connect, key exchange, host
// key, login. It holds one handshake slot while there is work to do. It has two limits: SshOptions::connect_timeout for
// connecting and the key exchange, and SshOptions::answer_time for everything, including waits for others.
//
// Thread: loop only. Destroying it gives up and reports nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/ssh/ssh_login.h"
#include "launcher/ssh/ssh_query.h"
#include "launcher/ssh/ssh_reach_words.h"
#include "launcher/ssh/ssh_session.h"
#include "launcher/ssh/ssh_shared.h"
#include "launcher/transport/tcp_dial.h"

namespace hvd::launch {

// WayOut says why the user's own ssh may do what we could not, and how our own try ended, if there was one.
struct WayOut {
  std::string because;  // empty: it cannot either, or must not be asked
  std::string own_try;
};

struct Reached {
  std::unique_ptr<SshSession> session;
  std::string node_address;
  std::string launcher_address;
};

class SshReach {
 public:
  using Done = std::function<void(Result<Reached>)>;

  // `done` is called once, from the loop and never from inside start(); it may destroy this object. Its error is one
  // line that begins with the host as the user wrote it. `shared` must outlive this object.
  SshReach(SshShared& shared, const NodeTarget& target, Done done);
  ~SshReach();
  SshReach(const SshReach&) = delete;
  SshReach& operator=(const SshReach&) = delete;

  void start();

  // Valid once `done` had an error. After a refused host key it is empty: nothing else may be tried.
  [[nodiscard]] const WayOut& way_out() const { return way_out_; }
  [[nodiscard]] const SshRequest& request() const { return request_; }
  [[nodiscard]] const SshHostConfig& config() const { return config_; }

 private:
  // Each of these must be the last call of its caller, since `done` may run inside and destroy this object.
  void begin();
  void on_config(Result<SshQuery::Answer> answer);
  void resolve();
  void on_addresses(Result<std::vector<SocketAddress>> addresses);
  void dial();
  void on_connected(Result<Fd> socket);
  void on_not_connected(const Error& why);
  void shake_hands();
  void drive();
  void drive_login();
  Result<void> watch_agent();
  void unwatch_agent();
  void on_handshake_failed(const Error& error);
  // `spent` is the time that the clock has counted.
  void time_out(Duration spent);
  void on_out_of_time();
  void finish(Result<Reached> result);
  void fail(const Error& why);
  // Gives up likewise, when the user's own ssh can do better.
  void give_way(const std::string& because, const Error& own_try);

  Result<void> begin_handshake();
  Result<void> verify_host_key();
  // Runs `then` from the loop once we hold a slot. The clock stands still until then.
  void take_slot(EventLoop::Task then);
  void release_slot_after(Duration patience);
  void release_slot();
  // The clock limits connecting and the key exchange. It stands still while the host is not the one that we wait for.
  void run_clock();
  void stop_clock();

  // constant after construction
  SshShared& shared_;
  const SshRequest request_;
  // loop only
  Done done_;
  HandshakeSlots::Ticket ticket_ = 0;
  TimerId slot_timer_ = 0;
  TimerId answer_timer_ = 0;  // over everything
  TimerId deadline_ = 0;      // the clock's, while it runs
  Duration timeout_{};
  Duration left_{};  // of timeout_, when the clock began to run
  TimePoint running_since_;
  TimerId backoff_ = 0;
  std::unique_ptr<SshQuery> query_;
  SshHostConfig config_;
  bool has_ssh_ = false;  // the program, that is
  WayOut way_out_;
  std::uint64_t lookup_ = 0;
  std::vector<SocketAddress> addresses_;
  std::unique_ptr<TcpDial> dial_;
  Fd socket_;                           // connected, until it is the session's
  int hangups_ = 0;                     // connections that the server closed before the key exchange
  int attempts_ = 0;                    // that found no server
  std::optional<Error> not_connected_;  // why the last of them did not, until the next one begins
  SshReachWords words_;
  std::vector<KnownHost> known_;
  std::unique_ptr<SshSession> session_;
  std::unique_ptr<SshLogin> login_;  // uses session_
  WatchId watch_ = 0;
  WatchId agent_watch_ = 0;  // of the user's ssh-agent, while login_ waits for it
  TimerId agent_limit_ = 0;
};

}  // namespace hvd::launch
