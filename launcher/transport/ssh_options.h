// SshOptions is what a user may say about reaching hosts by SSH, whether libssh2 or the system's ssh does it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/transport/resolver.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

struct SshOptions {
  int port = 0;                          // 0: as ssh_config says
  std::string identity_file;             // as `ssh -i`; tried before the others
  std::string config_file;               // as `ssh -F`
  std::string agent_path;                // of load_agent_images(): pushed to nodes that lack it
  std::vector<std::string> environment;  // for the user's own ssh
  Duration connect_timeout{};  // from dialling to the host's key; zero: ssh_config's ConnectTimeout, else 10 s
  // This limits the time from open() until the agent answers, with the waiting for other hosts. It is the last limit.
  Duration answer_time = std::chrono::seconds(120);
  std::size_t max_handshakes = 8;  // in flight at once; sshd refuses bursts (MaxStartups)
  Resolver::LookUp look_up;        // as Resolver has it
};

}  // namespace hvd::launch
