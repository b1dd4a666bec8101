// NodeTree is the agent's part in --sync and --sync-back: the folder that is brought to this node before its ranks
// start, and the files of it that go home when they have ended.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/result_sender.h"
#include "launcher/tree/tree_receiver.h"
#include "launcher/wire/messages.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class NodeTree {
 public:
  using Send = std::function<void(AgentMessage type, std::string_view body)>;

  NodeTree(EventLoop& loop, std::vector<std::string> environment, Send send)
      : loop_(loop), environment_(std::move(environment)), send_(std::move(send)) {}

  void set_job(TreeReceiver::Job job) { job_ = std::move(job); }
  // Takes a message of the launcher about the folder or its results.
  Result<void> on_message(AgentMessage type, std::string_view body);
  // The patterns of the files that go home.
  void want(std::vector<std::string> results) { wanted_ = std::move(results); }
  // The ranks start: all nodes that were to get files from here have them.
  void stop_serving();
  // Sends them, and then calls `then`. False: there is no folder, or nothing is wanted of it.
  bool send_results(std::function<void()> then);
  // Nobody waits for what has not been sent yet.
  void skip_results();
  // There is nobody to send them to.
  void let_go() { results_.reset(); }

 private:
  EventLoop& loop_;
  const std::vector<std::string> environment_;
  const Send send_;
  TreeReceiver::Job job_;
  std::unique_ptr<TreeReceiver> receiver_;  // null: no folder is brought to this node
  std::vector<std::string> wanted_;
  bool are_results_skipped_ = false;       // whoever ends the job does not wait for them, whenever they come
  std::unique_ptr<ResultSender> results_;  // null: none are being sent
  std::function<void()> then_;
};

}  // namespace hvd::launch
