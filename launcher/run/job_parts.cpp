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

void JobParts::broadcast(AgentMessage type, std::string_view body) const {
  const auto frame = std::make_shared<const std::string>(agent_frame(type, body));
  for (const auto& each : sessions) {
    if (!has_started || each->has_started()) {
      each->send_frame(type, frame);
    }
  }
}

void JobParts::show_status() const {
  logs.show_status(state.phase() == JobPhase::kOpening ? reporter.status() : "");
}

}  // namespace hvd::launch
