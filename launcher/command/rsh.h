// The rsh transport reaches nodes by any command that carries bytes: --rsh 'ssh -F cfg {host}', 'kubectl exec -i {host}
// --', 'ip netns exec {host}', 'docker exec -i {host}'.
//
// Thread: loop only. The EventLoop and the Log must outlive the transport and its streams; streams may outlive the
// transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/command/rsh_stream.h"
#include "launcher/command/rsh_template.h"
#include "launcher/transport/transport.h"

namespace hvd::launch {

struct RshOptions {
  int port = 0;  // what {port} is for hosts without one of their own; 0: 22
  RshSettings settings;
};

std::unique_ptr<Transport> make_rsh_transport(EventLoop& loop, RshTemplate command, RshOptions options, Log& log);

// Returns the command for one host. `port` has the meaning that it has in RshOptions.
Result<RshCommand> rsh_command(const RshTemplate& words, const NodeTarget& target, int port);

// Fails when the command's program is missing. It is asked once, before any host is tried.
Result<void> check_rsh_program(const RshTemplate& command, const std::vector<std::string>& environment);

}  // namespace hvd::launch
