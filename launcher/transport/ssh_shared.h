// What all streams of one ssh transport share.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "launcher/transport/agent_push.h"
#include "launcher/transport/handshake_slots.h"
#include "launcher/transport/resolver.h"
#include "launcher/transport/ssh.h"
#include "launcher/transport/ssh_config.h"

namespace hvd::launch {

struct SshShared {
  SshShared(EventLoop& loop_in, const SshOptions& options_in, Log& log_in)
      : loop(loop_in),
        log(log_in),
        options(options_in),
        local(LocalUser::current()),
        slots(loop_in, options_in.max_handshakes),
        resolver(loop_in),
        scratch(kScratchBytes) {}

  // Read at the first use and kept: every node gets the same bytes.
  const Result<AgentImage>& agent_image() {
    if (!image) {
      image.emplace(load_agent_image(options.agent_path));
    }
    return *image;
  }

  static constexpr std::size_t kScratchBytes = 128 * 1024;

  // constant after construction
  EventLoop& loop;
  Log& log;
  const SshOptions options;
  const LocalUser local;
  // loop only
  HandshakeSlots slots;
  Resolver resolver;
  std::optional<Result<AgentImage>> image;
  std::vector<std::uint8_t> scratch;  // what one read takes; one for all nodes, as only one reads at a time
  std::minstd_rand jitter{std::random_device{}()};
};

}  // namespace hvd::launch
