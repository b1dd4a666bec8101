// This is the user's own ssh, run as an rsh command. It works as libssh2 would have: without prompts, without a
// terminal, and with nothing forwarded.
#pragma once

#include "launcher/command/rsh_stream.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/transport/ssh_options.h"

namespace hvd::launch {

RshSettings system_ssh_settings(const SshOptions& options);

// A `connect_timeout` of zero leaves it to the user's configuration. `has_remote_command` says that the configuration
// has a RemoteCommand, which must be switched off because ssh accepts no other beside it.
RshCommand system_ssh_command(const SshRequest& request, Duration connect_timeout, bool has_remote_command = false);

// Returns the timeout to give to ssh: what the user asked for, nothing when the configuration has one, otherwise our
// default. ssh itself would wait as long as TCP does, which is minutes.
Duration ssh_connect_timeout(const SshOptions& options, const SshHostConfig& config);

}  // namespace hvd::launch
