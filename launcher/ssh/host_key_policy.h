// What to do about the key that a server showed: OpenSSH's policy words, without its prompts. Pure.
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

// The Error is one line that says what to do. `host`: as the user wrote it.
Result<HostKeyRuling> rule_on_host_key(const SshHostConfig& config, const std::string& host,
                                       const std::vector<KnownHost>& known, const HostKey& key);

// For a host whose key stands in certificates, which libssh2 cannot check. To take a plain key of it on trust would be
// less than the user asked for.
std::string certified_by(const KnownHost& authority);

// For a server with which the key exchange found nothing in common: be it the type of the host key, a cipher or a MAC,
// which libssh2 does not tell apart. So it must not call a key wrong, nor tell to delete one.
std::string no_common_algorithm(const SshHostConfig& config, const std::vector<KnownHost>& known);

}  // namespace hvd::launch
