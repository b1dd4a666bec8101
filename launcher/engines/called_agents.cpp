#include "launcher/engines/called_agents.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::launch {

CalledAgents::CalledAgents(EventLoop& loop, Transport& dial_back, int count, Handlers handlers)
    : handlers_(std::move(handlers)) {
  for (int partition = 0; partition < count; ++partition) {
    HeldAgent::Handlers held;
    held.on_ready = [this] { on_ready(); };
    held.on_lost = [this, partition](const Error& why) { on_lost(partition, why); };
    held_.push_back(std::make_unique<HeldAgent>(loop, dial_back, partition, std::move(held)));
  }
}

CalledAgents::~CalledAgents() = default;

bool CalledAgents::is_complete() const {
  return called_ == static_cast<int>(held_.size());
}

std::vector<ReadyMessage> CalledAgents::facts() const {
  HVD_CHECK(is_complete());
  std::vector<ReadyMessage> facts;
  for (const auto& held : held_) {
    facts.push_back(*held->ready());
  }
  return facts;
}

void CalledAgents::assign(std::vector<int> partition_of_rank) {
  HVD_CHECK(is_complete() && partition_of_rank.size() >= held_.size());
  partition_of_rank_ = std::move(partition_of_rank);
}

std::unique_ptr<Stream> CalledAgents::open(const NodeTarget& target, StreamSink& sink) {
  HVD_CHECK(!partition_of_rank_.empty());
  const int partition = partition_of_rank_.at(static_cast<std::size_t>(target.rank));
  return held_[static_cast<std::size_t>(partition)]->hand_to(sink);
}

void CalledAgents::on_ready() {
  ++called_;
  handlers_.on_called(called_);
}

void CalledAgents::on_lost(int partition, const Error& why) {
  handlers_.on_lost(why.with_context("the agent of partition " + std::to_string(partition)));
}

CalledPlacement place_called(const std::vector<ReadyMessage>& facts) {
  struct Machine {
    std::string name;
    std::vector<int> partitions;
  };
  std::vector<Machine> machines;
  std::vector<std::string> known;
  for (std::size_t partition = 0; partition < facts.size(); ++partition) {
    const ReadyMessage& ready = facts[partition];
    const auto found = std::find(known.begin(), known.end(), ready.machine);
    const auto index = static_cast<std::size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(ready.machine);
      machines.push_back(Machine{ready.host_name, {}});
    }
    machines[index].partitions.push_back(static_cast<int>(partition));
  }
  CalledPlacement called;
  HostList hosts;
  for (const Machine& machine : machines) {
    HostSpec host;
    host.name = machine.name;
    host.slots = static_cast<int>(machine.partitions.size());
    hosts.push_back(host);
    called.partition_of_rank.insert(called.partition_of_rank.end(), machine.partitions.begin(),
                                    machine.partitions.end());
  }
  called.placement = place(hosts, 0).value();
  return called;
}

}  // namespace hvd::launch
