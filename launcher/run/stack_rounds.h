// StackRounds asks the agents of a running job where their ranks are, and gathers the answers. Ranks go on meanwhile.
//
// One round is under way at a time; who asks during it gets its answer too. Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/run/job_parts.h"
#include "launcher/stacks/rank_stack.h"
#include "launcher/wire/stack_messages.h"

namespace hvd::launch {

class StackRounds {
 public:
  // `running` ranks were asked; those that did not answer in time are missing in `stacks`.
  using Done = std::function<void(const std::vector<RankStacks>& stacks, int running)>;

  explicit StackRounds(const JobParts& job) : job_(job) {}
  ~StackRounds() { job_.loop.cancel(timer_); }
  StackRounds(const StackRounds&) = delete;
  StackRounds& operator=(const StackRounds&) = delete;

  // `done` is called from the loop, also when no rank runs.
  void ask(bool is_native, Done done);
  // Gathers them, prints their tree, and keeps it with the job's output, where there is a folder for that. `why` says
  // what made hvdrun ask. `then` is called afterwards, unless the job is over by then. Nothing is printed of a job that
  // has begun to end meanwhile.
  void report(const std::string& why, std::function<void()> then);
  // An agent has answered. An error is the agent's.
  Result<void> on_answer(int node, const std::string& body);
  // The job ends: who waits gets what has come.
  void stop();

 private:
  void ask(bool is_native, Duration patience, Done done);
  void end();
  void tell(const std::string& why, const std::vector<RankStacks>& read, int running);
  void keep(const std::vector<std::string>& lines);

  const JobParts& job_;
  std::vector<Done> waiting_;
  std::vector<RankStacks> got_;
  std::set<int> missing_;
  int running_ = 0;
  bool is_over_ = false;  // the job ends
  std::uint32_t number_ = 0;
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
