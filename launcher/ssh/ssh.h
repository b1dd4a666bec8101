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

#include <memory>
#include <string>

#include "launcher/transport/ssh_options.h"
#include "launcher/transport/transport.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

std::unique_ptr<Transport> make_ssh_transport(EventLoop& loop, const SshOptions& options, Log& log);

// For --check-build.
std::string ssh_version_text();

}  // namespace hvd::launch
