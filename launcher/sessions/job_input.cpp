#include "launcher/sessions/job_input.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {

JobInput::JobInput(EventLoop& loop, Fd from, const std::vector<int>& nodes, Send send) : send_(std::move(send)) {
  for (const int node : nodes) {
    credits_[node] = 0;
  }
  InputSource::Sink sink;
  sink.allowance = [this] { return allowance(); };
  sink.on_bytes = [this](std::string_view bytes) {
    count_ += bytes.size();
    for (auto& [node, credit] : credits_) {
      credit -= bytes.size();
    }
    send_all(AgentMessage::kInput, bytes);
  };
  sink.on_end = [this] {
    source_.reset();
    send_all(AgentMessage::kInputEnd, {});
  };
  source_ = std::make_unique<InputSource>(loop, std::move(from), std::move(sink));
}

std::size_t JobInput::allowance() const {
  std::uint64_t least = credits_.empty() ? 0 : UINT64_MAX;
  for (const auto& [node, credit] : credits_) {
    least = std::min(least, credit);
  }
  return static_cast<std::size_t>(least);
}

void JobInput::send_all(AgentMessage type, std::string_view body) {
  const auto frame = std::make_shared<const std::string>(agent_frame(type, body));
  for (const auto& [node, credit] : credits_) {
    send_(node, type, frame);
  }
}

void JobInput::on_credit(int node, std::uint64_t bytes) {
  const auto found = credits_.find(node);
  if (found != credits_.end()) {
    const bool was_waited_for = allowance() == 0;
    found->second += bytes;
    if (was_waited_for) {
      look_again();
    }
  }
}

void JobInput::on_over(int node) {
  if (credits_.erase(node) == 0) {
    return;
  }
  if (credits_.empty()) {
    source_.reset();
  } else {
    look_again();  // the others may have been waiting for this node's credit
  }
}

void JobInput::look_again() {
  if (source_) {
    source_->resume();
  }
}

}  // namespace hvd::launch
