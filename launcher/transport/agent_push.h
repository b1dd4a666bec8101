// Agent push is how a node that has only a shell and an ssh server comes to run our agent.
//
// One remote command does everything over one channel: it looks for agent-<sha256>, the one for the node's processor,
// in a private cache directory, asks for the bytes if they are missing, verifies, links, and executes. This file has
// the command's text and the reader of its answers. It knows nothing of ssh. Value types.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/transport/agent_images.h"
#include "runtime/base/bytes.h"

namespace hvd::launch {

// Returns the command line for the remote user's login shell. It is written so that sh, csh and fish read it alike.
std::string agent_start_command(const AgentImages& images);

// Returns the same, in one line, for a `sh` that reads commands from the stream. The agent's bytes and the frames
// follow on the same stream, but only after the command has asked for them: a shell that reads ahead would swallow
// them.
std::string agent_start_line(const AgentImages& images);

// AgentGreeting reads what the remote command prints until the agent itself speaks. Login shells print things of their
// own first. They are skipped, and kept for the error when no agent comes.
class AgentGreeting {
 public:
  enum class Event : std::uint8_t {
    kNone,    // more bytes needed
    kNeed,    // send the agent's bytes, for the processor that wanted() names
    kAgent,   // the agent runs; rest() is its first output
    kFailed,  // failure() says why
  };
  // Call it until it answers kNone, and not after kAgent: bytes that are fed after kAgent belong to rest().
  void feed(Bytes bytes) { buffer_.append(as_text(bytes)); }
  Event next();

  [[nodiscard]] const std::string& rest() const { return buffer_; }
  // Returns the key for AgentImages::find().
  [[nodiscard]] const std::string& wanted() const { return wanted_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // Returns the last line of noise, for the error when the channel ends early.
  [[nodiscard]] std::string last_noise() const;

 private:
  Event read_line(std::string_view line);
  Event fail(std::string why);

  std::string buffer_;
  std::string wanted_;
  std::string noise_;
  std::size_t skipped_ = 0;
  std::string failure_;
};

}  // namespace hvd::launch
