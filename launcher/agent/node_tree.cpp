#include "launcher/agent/node_tree.h"

#include <utility>

namespace hvd::launch {

Result<void> NodeTree::on_message(AgentMessage type, std::string_view body) {
  if (type == AgentMessage::kResultCredit) {
    HVD_TRY_ASSIGN(const ResultCredit credit, ResultCredit::decode(body));
    if (results_ != nullptr) {
      results_->on_credit(credit);
    }
    return {};
  }
  if (receiver_ == nullptr) {
    receiver_ = std::make_unique<TreeReceiver>(loop_, environment_, job_, send_);
  }
  return receiver_->on_message(type, body);
}

void NodeTree::stop_serving() {
  if (receiver_ != nullptr) {
    receiver_->stop_serving();
  }
}

bool NodeTree::send_results(std::function<void()> then) {
  if (are_results_skipped_ || wanted_.empty() || receiver_ == nullptr || !receiver_->folder()) {
    return false;
  }
  then_ = std::move(then);
  ResultSender::Sink sink;
  sink.send = send_;
  sink.on_problem = [this](const std::string& why) { send_(AgentMessage::kProblem, why); };
  sink.on_over = [this] { loop_.post([this] { skip_results(); }); };
  results_ = std::make_unique<ResultSender>(loop_, receiver_->folder()->path(), std::move(sink));
  results_->begin(receiver_->folder()->index(), wanted_);
  return true;
}

void NodeTree::skip_results() {
  are_results_skipped_ = true;
  if (results_ != nullptr) {
    results_.reset();
    then_();
  }
}

}  // namespace hvd::launch
