// The user's own ssh, run as an rsh command. It is asked in the way in which libssh2 would have gone: without prompts,
// without a terminal, and with nothing forwarded.
#pragma once

#include "launcher/command/rsh_stream.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/transport/ssh_options.h"

namespace hvd::launch {

RshSettings system_ssh_settings(const SshOptions& options);

// `connect_timeout`: zero leaves it to the user's configuration. `has_remote_command`: that has a RemoteCommand, beside
// which ssh refuses ours.
RshCommand system_ssh_command(const SshRequest& request, Duration connect_timeout, bool has_remote_command = false);

// What to give it: what was asked for, else nothing when the configuration has one, else our default; ssh itself would
// wait as long as TCP does, which is minutes.
Duration ssh_connect_timeout(const SshOptions& options, const SshHostConfig& config);

}  // namespace hvd::launch
