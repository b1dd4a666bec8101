// The ssh transport reaches a node over SSH with libssh2, brings our agent there when the node lacks it, and starts it.
//
// It asks `ssh -G` what the user's own `ssh` would do, and never guesses: names, ports, users, keys, known_hosts files
// and the host-key policy. It never prompts. When the answer needs more than libssh2 can do, the user's own ssh opens
// the host instead. A build without libssh2 opens every host that way (no_ssh.cpp).
//
// Thread: loop only. The EventLoop and the Log must outlive the transport and its streams; streams may outlive the
// transport.
#pragma once

#include <memory>
#include <string>

#include "launcher/transport/ssh_options.h"
#include "launcher/transport/transport.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

std::unique_ptr<Transport> make_ssh_transport(EventLoop& loop, const SshOptions& options, Log& log);

// Returns the text for --check-build.
std::string ssh_version_text();

}  // namespace hvd::launch
