// CalledAgents holds the agents of a job whose places are not known before they run. An engine such as Spark puts its
// tasks where it likes. Each task starts an agent, which connects to the launcher (dial_back.h) and says in its first
// message which machine it is on. The ranks can be placed only when the last agent has connected. So these streams are
// opened before there is a placement. Afterwards CalledAgents acts as the Transport that hands them to the job's
// sessions.
//
// An agent is numbered by its partition, 0 to count-1. place_called() decides which rank it gets.
//
// Thread: loop only. The DialBack and the EventLoop outlive it; it outlives the streams that it hands out.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launcher/engines/held_agent.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"
#include "launcher/wire/messages.h"

namespace hvd::launch {

class CalledAgents final : public Transport {
 public:
  struct Handlers {
    // Another agent has connected and sent its facts; `called` counts those that have.
    std::function<void(int called)> on_called;
    // An agent that had connected is gone again, or broke the protocol: the job cannot start. Called once.
    std::function<void(const Error& why)> on_lost;
  };

  CalledAgents(EventLoop& loop, Transport& dial_back, int count, Handlers handlers);
  ~CalledAgents() override;
  CalledAgents(const CalledAgents&) = delete;
  CalledAgents& operator=(const CalledAgents&) = delete;

  [[nodiscard]] int called() const { return called_; }
  [[nodiscard]] bool is_complete() const;
  // Returns what each agent has reported of its machine, by partition. Valid once is_complete().
  [[nodiscard]] std::vector<ReadyMessage> facts() const;

  // Makes open() hand out the agent of partition partition_of_rank[target.rank] from now on, where target.rank is the
  // first of the agent's ranks. Call it once, when complete.
  void assign(std::vector<int> partition_of_rank);
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override;

 private:
  void on_ready();
  void on_lost(int partition, const Error& why);

  Handlers handlers_;
  std::vector<std::unique_ptr<HeldAgent>> held_;  // by partition
  std::vector<int> partition_of_rank_;
  int called_ = 0;
};

// CalledPlacement says where the ranks are, once all agents have connected.
struct CalledPlacement {
  Placement placement;
  std::vector<int> partition_of_rank;
};

// Makes a node of the agents on one machine (ReadyMessage::machine). Nodes are ordered by their lowest partition, and
// the ranks of a node by their partitions. Pure.
CalledPlacement place_called(const std::vector<ReadyMessage>& facts);

}  // namespace hvd::launch
