#include "launcher/run/job_parts.h"

#include <signal.h>

#include <chrono>

namespace hvd::launch {

void JobParts::end_node(int node) const {
  StopMessage stop;
  stop.signal = SIGTERM;
  stop.grace_ms = static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(spec.grace).count());
  session(node).send(AgentMessage::kStop, stop.encode());
}

}  // namespace hvd::launch
