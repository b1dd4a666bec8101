// JobParts is what the parts of a running job work on together. JobRunner owns all of it, and it outlives the parts.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/job/job_spec.h"
#include "launcher/logs/log_mux.h"
#include "launcher/membership/generations.h"
#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"
#include "launcher/samples/job_watch.h"
#include "launcher/sessions/node_session.h"
#include "launcher/state/job_state.h"
#include "runtime/base/log.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

struct JobParts {
  EventLoop& loop;
  const JobSpec& spec;
  Placement& placement;  // where the ranks are
  Placement& agents;     // the node of each session
  JobState& state;
  Generations& generations;
  std::vector<std::unique_ptr<NodeSession>>& sessions;
  std::vector<StartMessage>& starts;  // for each node; kept while ranks may be restarted
  LogMux& logs;
  JobReporter& reporter;
  Log& log;
  std::string& id;
  TimePoint began;
  std::function<void(const JobEvent& event)> apply;
  bool has_started = false;  // agents were asked to start their ranks

  [[nodiscard]] NodeSession& session(int node) const { return *sessions[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const NodePlan& agent(int node) const { return agents.nodes[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const RankRecord& record(int rank) const { return state.ranks()[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool is_ending() const {
    return state.phase() == JobPhase::kStopping || state.phase() == JobPhase::kDone;
  }
  // Prints what the reporter makes of it, in order with what the ranks printed.
  void say(const JobNews& news) const {
    for (const std::string& line : reporter.on(news)) {
      logs.say(line);
    }
  }
  // Sends the message to every node whose ranks were told to start; before that, to all nodes.
  void broadcast(AgentMessage type, std::string_view body) const;
  // Shows what the start of the job waits for, while it does.
  void show_status() const;
  // Ends the ranks of the node in order, and then its agent.
  void end_node(int node) const;
};

// Returns what watches the job: the way to its agents, and its nodes and ranks as they are.
JobWatch::Sink watch_sink_of(const JobParts& job);

}  // namespace hvd::launch
