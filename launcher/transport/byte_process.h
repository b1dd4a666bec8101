// ByteProcess is one process that carries bytes to a node and back through its standard input and output. It runs here
// (rsh_process.h), or on a node that relays (relay.h).
//
// Thread: loop only. A handler may destroy the process. Destroying it ends what still runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/process/exit_status.h"
#include "launcher/transport/agent_push.h"
#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

class ByteProcess {
 public:
  struct Handlers {
    std::function<void(Bytes)> on_output;
    std::function<void(std::string_view)> on_errors;  // standard error, in any chunks
    std::function<void()> on_taken;                   // it took bytes of its input; not every process can tell
    // The output has ended, and `how` says why: the process has ended, or lives on without output, or cannot be reached
    // (then `status` is empty). Nothing is called after this.
    std::function<void(std::optional<ExitStatus> status, const std::string& how)> on_over;
  };

  virtual ~ByteProcess() = default;
  virtual void write(std::string bytes) = 0;
  // Sends the agent's executable without copying it: `image` must exist until it is taken.
  virtual void push(const AgentImage& image) = 0;
  // Flushes what is queued, then ends the process's input.
  virtual void close_input() = 0;
  // Limits how long the process, and processes it left at its output, may take to end.
  virtual void set_patience(Duration patience) = 0;

 protected:
  ByteProcess() = default;
  ByteProcess(const ByteProcess&) = default;
  ByteProcess& operator=(const ByteProcess&) = default;
};

}  // namespace hvd::launch
