// These functions decide about the key that a server showed, by OpenSSH's policy words and without prompts. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/ssh/known_hosts.h"
#include "launcher/transport/ssh_config.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct HostKeyRuling {
  bool remember = false;  // append it to known_hosts
  std::string notice;     // one line for the log; empty: nothing to tell
};

// The Error is one line that says what to do. `by_hand` is what the user may try, "try: ssh node1 true".
Result<HostKeyRuling> rule_on_host_key(const SshHostConfig& config, const std::string& by_hand,
                                       const std::vector<KnownHost>& known, const HostKey& key);

// Returns the error for a host whose key is vouched for by certificates, which libssh2 cannot check. To trust a plain
// key of that host would be less than the user asked for.
std::string certified_by(const KnownHost& authority);

// Returns the error for a server with which the key exchange found no common algorithm. libssh2 does not say whether
// the host key, a cipher or a MAC was missing, so the text must not call a key wrong or tell to delete one.
std::string no_common_algorithm(const SshHostConfig& config, const std::vector<KnownHost>& known);

}  // namespace hvd::launch
