// The ssh transport: reaches a node over SSH with libssh2, brings our agent there when the node lacks it, and starts
// it.
//
// What the user's own `ssh` would do is asked from `ssh -G`, never guessed: names, ports, users, keys, known_hosts
// files and the host-key policy. It never prompts. A host for which that asks for more than libssh2 can do is opened by
// the user's own ssh instead, and so is every host in a build without libssh2 (no_ssh.cpp).
//
// Thread: loop only. The EventLoop and the Log must outlive the transport and its streams; streams may outlive the
// transport.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "launcher/transport/resolver.h"
#include "launcher/transport/transport.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/log.h"

namespace hvd::launch {

struct SshOptions {
  int port = 0;                          // 0: as ssh_config says
  std::string identity_file;             // as `ssh -i`; tried before the others
  std::string config_file;               // as `ssh -F`
  std::string agent_path;                // the static agent executable on this machine, pushed to nodes that lack it
  std::vector<std::string> environment;  // for the user's own ssh
  Duration connect_timeout{};  // from dialling to the host's key; zero: ssh_config's ConnectTimeout, else 10 s
  // From open() until the agent answers, the waiting for other hosts included; the last limit of all.
  Duration answer_time = std::chrono::seconds(120);
  std::size_t max_handshakes = 8;  // in flight at once; sshd refuses bursts (MaxStartups)
  Resolver::LookUp look_up;        // as Resolver has it
};

std::unique_ptr<Transport> make_ssh_transport(EventLoop& loop, const SshOptions& options, Log& log);

// For --check-build.
std::string ssh_version_text();

}  // namespace hvd::launch
