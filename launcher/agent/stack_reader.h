// StackReader answers the question where the ranks of this node are. Each rank is read by an errand of its own, a few
// at a time, so that the agent goes on meanwhile.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launcher/survey/errand.h"
#include "launcher/wire/stack_messages.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class StackReader {
 public:
  using Send = std::function<void(const RankStacks&)>;

  StackReader(EventLoop& loop, std::vector<std::string> environment, Send send)
      : loop_(loop), environment_(std::move(environment)), send_(std::move(send)) {}
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // Reads these ranks, and sends one answer for each. A newer question replaces one that is not answered yet.
  void ask(const StacksRequest& request, std::vector<std::pair<int, pid_t>> ranks);

 private:
  void go_on();
  void read(int rank, pid_t pid);

  EventLoop& loop_;
  const std::vector<std::string> environment_;
  const Send send_;
  StacksRequest request_;
  Deadline deadline_ = Deadline::after(Duration::zero());
  std::vector<std::pair<int, pid_t>> left_;  // the next one last
  std::map<int, std::unique_ptr<Errand>> errands_;
};

}  // namespace hvd::launch
