// SshShared is what all streams of one ssh transport share.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "launcher/command/system_ssh.h"
#include "launcher/ssh/ssh.h"
#include "launcher/transport/ssh_config.h"

namespace hvd::launch {

struct SshShared {
  SshShared(EventLoop& loop_in, const SshOptions& options_in, Log& log_in)
      : loop(loop_in),
        log(log_in),
        options(options_in),
        local(LocalUser::current(options.environment)),
        system_ssh(std::make_shared<RshShared>(loop_in, system_ssh_settings(options_in), log_in)),
        slots(system_ssh->slots),
        resolver(system_ssh->resolver),
        scratch(kScratchBytes) {}

  const Result<AgentImages>& agent_images() { return system_ssh->agent_images(); }

  static constexpr std::size_t kScratchBytes = 128 * 1024;

  // constant after construction
  EventLoop& loop;
  Log& log;
  const SshOptions options;
  const LocalUser local;
  // loop only
  const std::shared_ptr<RshShared> system_ssh;  // shared: with the streams that it opens
  HandshakeSlots& slots;                        // of system_ssh: what both are bounded by
  Resolver& resolver;
  bool has_told_switch = false;  // once per job
  // This ssh-agent did not answer, and until that time nobody asks it again. Otherwise each of a thousand hosts would
  // wait for it.
  std::string mute_agent;
  TimePoint mute_until;
  std::vector<std::uint8_t> scratch;  // what one read takes; one for all nodes, as only one reads at a time
  std::minstd_rand jitter{std::random_device{}()};
};

}  // namespace hvd::launch
