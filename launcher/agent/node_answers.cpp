#include "launcher/agent/node_answers.h"

#include <utility>

#include "launcher/agent/node_ranks.h"
#include "launcher/survey/own_nccl_files.h"

namespace hvd::launch {

NodeAnswers::NodeAnswers(EventLoop& loop, std::vector<std::string> environment, Sink sink)
    : loop_(loop), environment_(std::move(environment)), sink_(std::move(sink)) {
  NodeSampler::Sink samples;
  samples.ranks = sink_.ranks;
  samples.send = [this](const SampleMessage& sample) { sink_.send(AgentMessage::kSample, sample.encode()); };
  sampler_ = std::make_unique<NodeSampler>(loop_, environment_, std::move(samples));
}

void NodeAnswers::admit(const JobSecret& secret) {
  NodeCheck::Node node;
  node.environment = environment_;
  node.secret = secret;
  node.environment_of = [this](const StartMessage& start) {
    return environment_of(environment_, own_nccl_names(environment_), start, start.ranks.front());
  };
  node.send = sink_.send;
  check_ = std::make_unique<NodeCheck>(loop_, std::move(node));
  stacks_ = std::make_unique<StackReader>(
      loop_, environment_, [this](const RankStacks& stacks) { sink_.send(AgentMessage::kStacks, stacks.encode()); });
}

bool NodeAnswers::takes(AgentMessage type) const {
  return type == AgentMessage::kAskStacks || type == AgentMessage::kWatch ||
         (check_ != nullptr && NodeCheck::is_question(type));
}

Result<void> NodeAnswers::on_question(AgentMessage type, std::string_view body) {
  if (type == AgentMessage::kAskStacks) {
    HVD_TRY_ASSIGN(const StacksRequest request, StacksRequest::decode(body));
    if (stacks_ != nullptr) {
      stacks_->ask(request, sink_.ranks());
    }
    return {};
  }
  if (type == AgentMessage::kWatch) {
    HVD_TRY_ASSIGN(const WatchMessage watch, WatchMessage::decode(body));
    if (sampler_ != nullptr) {
      sampler_->watch(std::chrono::milliseconds(watch.interval_ms), watch.wants_gpus);
    }
    return {};
  }
  return check_->on_question(type, body);
}

void NodeAnswers::tell_last(int rank, pid_t pid) {
  if (sampler_ != nullptr) {
    sampler_->tell_last(rank, pid);
  }
}

bool NodeAnswers::on_exited(pid_t pid, const ExitStatus& status) {
  return sampler_ != nullptr && sampler_->on_exited(pid, status);
}

void NodeAnswers::let_go() {
  check_.reset();
  stacks_.reset();
  sampler_.reset();
}

}  // namespace hvd::launch
