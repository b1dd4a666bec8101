#include "launcher/ssh/ssh_reach_words.h"

#include <errno.h>

#include <vector>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

std::string try_by_hand(const SshRequest& request) {
  std::string command = "ssh";
  const std::vector<std::string> argv = ssh_config_argv(request);
  for (std::size_t i = 2; i < argv.size(); ++i) {  // past "ssh -G"
    command += argv[i] == "--" ? "" : " " + argv[i];
  }
  return "try: " + command + " true";
}

}  // namespace

SshReachWords::SshReachWords(const SshRequest& request) : by_hand_(try_by_hand(request)) {}

void SshReachWords::set_server(const std::string& hostname, int port) {
  hostname_ = hostname;
  port_ = port;
}

std::string SshReachWords::named() const {
  return hostname_ + " port " + std::to_string(port_);
}

std::string SshReachWords::where() const {
  return address_.empty() ? named() : address_ + " port " + std::to_string(port_);
}

Error SshReachWords::not_resolved(const Error& error) const {
  return Error(error.code(), "cannot resolve the host name '" + hostname_ + "' (" + error.message() +
                                 "); check the spelling, or /etc/hosts, or DNS");
}

Error SshReachWords::not_connected(const Error& error, const std::string& attempts) const {
  if (!attempts.empty()) {
    return Error(Code::kUnreachable,
                 "cannot connect to " + named() + ": " + attempts + "; is the host up? " + by_hand_);
  }
  switch (error.sys_errno()) {
    case ECONNREFUSED:
      return Error(Code::kUnreachable, "connection to " + where() + " refused; is sshd running there? " + by_hand_);
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Error(Code::kUnreachable,
                   "no route to " + where() + "; is the host up and the network right? " + by_hand_);
    case ETIMEDOUT:
      return Error(Code::kTimeout, "no answer from " + where() + "; is the host up? " + by_hand_);
    default:
      return Error(error.code(), "cannot connect to " + where() + " (" + error.message() + "); " + by_hand_);
  }
}

Error SshReachWords::no_session(const Error& error) const {
  return Error(error.code(),
               "no ssh session with " + where() + " (" + error.message() + "); is that an ssh server? " + by_hand_);
}

Error SshReachWords::no_config_within(Duration spent) {
  return Error(Code::kTimeout,
               "'ssh -G' gave no answer within " + duration_text(spent) + "; check the ssh configuration");
}

Error SshReachWords::not_connected_within(Duration spent, const std::string& attempts) const {
  const std::string limit = duration_text(spent);
  const std::string what = attempts.empty() ? "no answer from " + where() + " within " + limit
                                            : "not connected to " + named() + " within " + limit + ": " + attempts;
  return Error(Code::kTimeout, what + "; is the host up, or does a firewall drop that port? " + by_hand_);
}

Error SshReachWords::no_session_within(Duration spent) const {
  return Error(Code::kTimeout, where() + " did not finish the key exchange within " + duration_text(spent) +
                                   "; is that an ssh server? " + by_hand_);
}

Error SshReachWords::hung_up_within(Duration spent, int connections) const {
  return Error(Code::kTimeout, "the ssh server at " + where() + " closed " + std::to_string(connections) +
                                   " connections before the key exchange within " + duration_text(spent) +
                                   " (too many at once? see MaxStartups in its sshd_config); " + by_hand_);
}

Error SshReachWords::not_resolved_within(Duration limit) const {
  return Error(Code::kTimeout, "resolving the host name '" + hostname_ + "' took longer than " + duration_text(limit) +
                                   "; check DNS, or use an address");
}

Error SshReachWords::not_signed_within(Duration limit, const std::string& key) {
  return Error(Code::kTimeout, key + " has not signed within " + duration_text(limit) +
                                   "; does the agent wait for a confirmation, a PIN or a touch, or is it forwarded "
                                   "from a machine that sleeps? see: ssh-add -l");
}

Error SshReachWords::not_logged_in_within(Duration limit) const {
  return Error(Code::kTimeout, "not logged in at " + where() + " within " + duration_text(limit) +
                                   "; is the node overloaded, or a directory server that its sshd asks? " + by_hand_);
}

Error SshReachWords::no_turn_within(Duration limit, bool is_connected, std::size_t slots) {
  return Error(Code::kTimeout, (is_connected ? "connected, but not logged in yet after " : "not tried yet after ") +
                                   duration_text(limit) + ": it waited for other hosts, of which " +
                                   std::to_string(slots) + " are logged in at once");
}

}  // namespace hvd::launch
