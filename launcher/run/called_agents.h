// CalledAgents: the agents of a job whose places are not known before they run. An engine such as Spark puts its tasks
// where it likes; each task starts an agent, which calls the launcher (dial_back.h) and says in its first message what
// machine it is on. Only when the last one has called can the ranks be placed. So these streams are opened before there
// is a placement, and handed to the job's sessions afterwards, as a transport that has them already.
//
// An agent is numbered by its partition, 0 to count-1; which rank it gets is for place_called() to say.
//
// Thread: loop only. The DialBack and the EventLoop outlive it; it outlives the streams that it hands out.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/placement/placement.h"
#include "launcher/transport/transport.h"

namespace hvd::launch {

class CalledAgents final : public Transport {
 public:
  struct Handlers {
    // One more agent has called and said where it is; `called` of them have.
    std::function<void(int called)> on_called;
    // An agent that had called is gone again, or spoke nonsense: the job cannot start. Called once.
    std::function<void(const Error& why)> on_lost;
  };

  CalledAgents(EventLoop& loop, Transport& dial_back, int count, Handlers handlers);
  ~CalledAgents() override;
  CalledAgents(const CalledAgents&) = delete;
  CalledAgents& operator=(const CalledAgents&) = delete;

  [[nodiscard]] int called() const { return called_; }
  [[nodiscard]] bool is_complete() const;
  // What each agent has said of itself, by partition. When complete.
  [[nodiscard]] std::vector<ReadyMessage> facts() const;

  // From now on open() hands out the agent of partition partition_of_rank[target.rank]. When complete; once.
  void assign(std::vector<int> partition_of_rank);
  std::unique_ptr<Stream> open(const NodeTarget& target, StreamSink& sink) override;

 private:
  class Held;
  class Handed;
  void on_ready();
  void on_lost(int partition, const Error& why);

  EventLoop& loop_;
  Handlers handlers_;
  std::vector<std::unique_ptr<Held>> held_;  // by partition
  std::vector<int> partition_of_rank_;
  int called_ = 0;
};

// Where the ranks are, once all agents have called.
struct CalledPlacement {
  Placement placement;
  std::vector<int> partition_of_rank;
};

// Agents of one machine (ReadyMessage::machine) make a node. Nodes stand in the order of their lowest partition, and
// within a node ranks in the order of their partitions. Pure.
CalledPlacement place_called(const std::vector<ReadyMessage>& facts);

}  // namespace hvd::launch
