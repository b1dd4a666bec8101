#include "launcher/run/rank_changes.h"

#include <optional>
#include <string>

#include "launcher/run/start_plan.h"

namespace hvd::launch {

void RankChanges::act(const RestartRank& action) {
  job_.say(news::RankRestarted{action.rank, action.cause, action.number, job_.spec.restart_limit});
  const int node = job_.agents.node_of(action.rank).index;
  job_.generations.lose({action.rank}, action.cause,
                        restart_message(job_.starts[static_cast<std::size_t>(node)], action.rank, action.number));
  hosts_.on_restart(node);
}

void RankChanges::act(const GoOnWithout& action) {
  const std::string others = action.is_short ? "; too few are left, and wait for hosts, at most for --elastic-timeout"
                             : job_.spec.elastic_wait > Duration::zero()
                                 ? "; the others wait for another in its place, at most for --elastic-wait"
                                 : "; the others go on without it";
  job_.say(Note{LogLevel::kWarning, -1, action.cause + others});
  job_.generations.lose(action.ranks, action.cause, std::nullopt);
  const int node = job_.agents.node_of(action.ranks.front()).index;
  hosts_.leave_alone(node, "has failed");
  hosts_.end_if_idle(node);
}

void RankChanges::act(const EndNode& action) {
  job_.end_node(action.node);
}

void RankChanges::act(const EndRank& action) {
  const int node = job_.agents.node_of(action.rank).index;
  job_.session(node).send(AgentMessage::kEndRank, number_body(action.rank, action.signo));
}

}  // namespace hvd::launch
