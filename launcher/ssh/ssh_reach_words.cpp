// These are the errors that an SshReach reports when a host is not reached.
#include <errno.h>

#include <algorithm>

#include "launcher/ssh/ssh_reach.h"
#include "runtime/base/text.h"

namespace hvd::launch {

std::string SshReach::where() const {
  return (address_.empty() ? config_.hostname : address_) + " port " + std::to_string(config_.port);
}

std::string SshReach::try_by_hand() const {
  std::string command = "ssh";
  const std::vector<std::string> argv = ssh_config_argv(request_);
  for (std::size_t i = 2; i < argv.size(); ++i) {  // past "ssh -G"
    command += argv[i] == "--" ? "" : " " + argv[i];
  }
  return "try: " + command + " true";
}

Error SshReach::connect_error(const TcpDial& dial, const Error& error) const {
  if (addresses_.size() > 1) {
    return Error(Code::kUnreachable, "cannot connect to " + config_.hostname + " port " + std::to_string(config_.port) +
                                         ": " + dial.words() + "; is the host up? " + try_by_hand());
  }
  switch (error.sys_errno()) {
    case ECONNREFUSED:
      return Error(Code::kUnreachable,
                   "connection to " + where() + " refused; is sshd running there? " + try_by_hand());
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Error(Code::kUnreachable,
                   "no route to " + where() + "; is the host up and the network right? " + try_by_hand());
    case ETIMEDOUT:
      return Error(Code::kTimeout, "no answer from " + where() + "; is the host up? " + try_by_hand());
    default:
      return Error(error.code(), "cannot connect to " + where() + " (" + error.message() + "); " + try_by_hand());
  }
}

// `spent` is the time that the clock has counted.
void SshReach::time_out(Duration spent) {
  const std::string limit = duration_text(spent);
  if (query_ != nullptr) {
    return fail(Code::kTimeout, "'ssh -G' gave no answer within " + limit + "; check the ssh configuration");
  }
  if (hangups_ > 0) {
    return fail(Code::kTimeout, "the ssh server at " + where() + " closed " + std::to_string(hangups_) +
                                    " connections before the key exchange within " + limit +
                                    " (too many at once? see MaxStartups in its sshd_config); " + try_by_hand());
  }
  if (session_ != nullptr) {
    return fail(Code::kTimeout, where() + " did not finish the key exchange within " + limit +
                                    "; is that an ssh server? " + try_by_hand());
  }
  if (dial_ != nullptr && addresses_.size() > 1) {
    return fail(Code::kTimeout, "not connected to " + config_.hostname + " port " + std::to_string(config_.port) +
                                    " within " + limit + ": " + dial_->words() +
                                    "; is the host up, or does a firewall drop that port? " + try_by_hand());
  }
  if (dial_ != nullptr) {
    address_ = dial_->current().ip();
  }
  fail(Code::kTimeout, "no answer from " + where() + " within " + limit +
                           "; is the host up, or does a firewall drop that port? " + try_by_hand());
}

// This runs a little before --start-timeout, which would only know that nothing came.
void SshReach::on_out_of_time() {
  const std::string limit = duration_text(shared_.options.answer_time);
  if (lookup_ != 0) {
    return fail(Code::kTimeout, "resolving the host name '" + config_.hostname + "' took longer than " + limit +
                                    "; check DNS, or use an address");
  }
  if (login_ != nullptr && !login_->signs_with().empty()) {
    return fail(Code::kTimeout, login_->signs_with() + " has not signed within " + limit +
                                    "; does the agent wait for a confirmation, a PIN or a touch, or is it forwarded "
                                    "from a machine that sleeps? see: ssh-add -l");
  }
  if (login_ != nullptr) {
    return fail(Code::kTimeout, "not logged in at " + where() + " within " + limit +
                                    "; is the node overloaded, or a directory server that its sshd asks? " +
                                    try_by_hand());
  }
  if (deadline_ == 0 && hangups_ == 0) {
    return fail(Code::kTimeout,
                (socket_.is_open() ? "connected, but not logged in yet after " : "not tried yet after ") + limit +
                    ": it waited for other hosts, of which " + std::to_string(shared_.options.max_handshakes) +
                    " are logged in at at once");
  }
  stop_clock();
  time_out(timeout_ - std::max(left_, Duration::zero()));
}

}  // namespace hvd::launch
