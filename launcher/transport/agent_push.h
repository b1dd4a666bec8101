// Agent push: how a node that has only a shell and an ssh server comes to run our agent.
//
// One remote command does everything over one channel: look for agent-<sha256> in a private cache directory, ask for
// its bytes if it is not there, verify, link, exec. Here are its text and the reader of what it answers; nothing here
// knows ssh. Value types.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// The agent executable, in memory.
struct AgentImage {
  std::string bytes;
  std::string sha256;   // lower-case hex
  std::string machine;  // `uname -m` that it runs on
};
Result<AgentImage> load_agent_image(const std::string& path);

// The command line for the remote user's login shell, whichever that is: sh, csh and fish read it alike.
std::string agent_start_command(const AgentImage& image);

// The same for a `sh` that reads its commands from the stream: one line. The agent's bytes and the frames come after it
// on the same stream, but only when it has asked for them: a shell may read ahead, but not what was not sent yet.
std::string agent_start_line(const AgentImage& image);

// Reads what the remote command prints until the agent itself speaks. Login shells print things of their own first;
// those are skipped, and kept for the error when no agent comes.
class AgentGreeting {
 public:
  enum class Event : std::uint8_t {
    kNone,    // more bytes needed
    kNeed,    // send the agent's bytes
    kAgent,   // the agent runs; rest() is its first output
    kFailed,  // failure() says why
  };
  // Call until it answers kNone, and not after kAgent; what is fed then belongs to rest().
  void feed(Bytes bytes) { buffer_.append(as_text(bytes)); }
  Event next();

  [[nodiscard]] const std::string& rest() const { return buffer_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // The last line of noise, for the error when the channel ends early.
  [[nodiscard]] std::string last_noise() const;

 private:
  Event read_line(std::string_view line);
  Event fail(std::string why);

  std::string buffer_;
  std::string noise_;
  std::size_t skipped_ = 0;
  std::string failure_;
};

}  // namespace hvd::launch
