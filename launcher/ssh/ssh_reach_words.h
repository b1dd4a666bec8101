// SshReachWords says why an SshReach did not reach its host: what failed, where, and what the user may try. These lines
// are all that a user sees of a host that is down, so each step on the way has its own.
//
// Value type. No line names the host as the user wrote it; SshReach puts that before them.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/transport/ssh_config.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class SshReachWords {
 public:
  explicit SshReachWords(const SshRequest& request);

  // Sets which server the host is, once ssh_config has said it.
  void set_server(const std::string& hostname, int port);
  // Sets the server's address, which is said in place of its name from then on.
  void set_address(const std::string& address) { address_ = address; }
  [[nodiscard]] const std::string& address() const { return address_; }
  // "try: ssh -p 2222 node1 true".
  [[nodiscard]] const std::string& by_hand() const { return by_hand_; }

  [[nodiscard]] Error not_resolved(const Error& error) const;
  // `attempts` is what each address said when there are several (TcpDial::words), and empty when there is one.
  [[nodiscard]] Error not_connected(const Error& error, const std::string& attempts) const;
  [[nodiscard]] Error no_session(const Error& error) const;

  // These say that the time for connecting and the key exchange is over, of which `spent` was counted.
  [[nodiscard]] static Error no_config_within(Duration spent);
  [[nodiscard]] Error not_connected_within(Duration spent, const std::string& attempts) const;
  [[nodiscard]] Error no_session_within(Duration spent) const;
  [[nodiscard]] Error hung_up_within(Duration spent, int connections) const;

  // These say that all of the time is over.
  [[nodiscard]] Error not_resolved_within(Duration limit) const;
  [[nodiscard]] static Error not_signed_within(Duration limit, const std::string& key);
  [[nodiscard]] Error not_logged_in_within(Duration limit) const;
  // Its turn did not come: at most `slots` hosts are logged in at at once.
  [[nodiscard]] static Error no_turn_within(Duration limit, bool is_connected, std::size_t slots);

 private:
  [[nodiscard]] std::string named() const;  // "node1.cluster port 22"
  [[nodiscard]] std::string where() const;  // "10.0.0.1 port 22"

  const std::string by_hand_;
  std::string hostname_;
  int port_ = 22;
  std::string address_;  // numeric; empty: not known yet
};

}  // namespace hvd::launch
