#include "launcher/run/job_parts.h"

#include <signal.h>

#include <chrono>

namespace hvd::launch {
namespace {

std::string state_text(const RankRecord& rank) {
  switch (rank.state) {
    case RankRecord::State::kPending:
      return "pending";
    case RankRecord::State::kRunning:
      return "running";
    case RankRecord::State::kEnded:
      return rank.status.is_success() ? "ended" : "failed";
    case RankRecord::State::kLost:
      break;
  }
  return "lost";
}

JobPicture view_of(const JobParts& job) {
  JobPicture view;
  view.id = job.id;
  view.running_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(job.loop.now() - job.began).count());
  for (const NodePlan& plan : job.agents.nodes) {
    NodeShown& node = view.nodes.emplace_back();
    node.name = plan.host.name;
    if (static_cast<std::size_t>(plan.index) < job.sessions.size()) {
      const NodeSession& session = job.session(plan.index);
      node.is_away = session.is_away();
      node.is_connected = session.ready().has_value() && !session.is_away() && !job.state.is_lost(plan.index);
    }
    for (const auto& placed : plan.ranks) {
      RankShown& rank = view.ranks.emplace_back();
      rank.rank = placed.rank;
      rank.node = plan.index;
      rank.state = state_text(job.record(placed.rank));
      rank.restarts = job.record(placed.rank).restarts;
    }
  }
  return view;
}

}  // namespace

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

JobWatch::Sink watch_sink_of(const JobParts& job) {
  JobWatch::Sink sink;
  sink.ask = [&job](int node, const WatchMessage& watch) {
    if (NodeSession& session = job.session(node); session.has_agent()) {
      session.send(AgentMessage::kWatch, watch.encode());
    }
  };
  sink.view = [&job] { return view_of(job); };
  sink.on_trouble = [&job](const Error& why) {
    job.say(Note{LogLevel::kError, -1, why.message() + "; the job goes on"});
  };
  return sink;
}

}  // namespace hvd::launch
