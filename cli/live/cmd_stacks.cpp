#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/live/live_jobs.h"
#include "launcher/stacks/rank_stack.h"
#include "launcher/stacks/stack_tree.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

// Longer than hvdrun waits for its agents.
constexpr auto kPatience = std::chrono::seconds(30);

std::string json_of(const std::vector<RankStack>& stacks) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RankStack& stack : stacks) {
    all.push_back({{"rank", stack.rank},
                   {"host", stack.host},
                   {"pid", stack.pid},
                   {"read", stack.is_read},
                   {"frames", stack.frames}});
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

Result<int> show_stacks(const StacksOptions& options) {
  HVD_TRY_ASSIGN(const FoundJob found, find_running_job(options.job));
  HVD_TRY_ASSIGN(LiveAnswer asked,
                 LiveAnswer::ask(found.socket, LiveMessage::kAskStacks, StacksQuestion{options.native}.encode()));
  HVD_TRY_ASSIGN(const std::optional<Frame> frame, asked.next(Deadline::after(kPatience)));
  if (!frame || frame->type != static_cast<std::uint16_t>(LiveMessage::kStacks)) {
    return Error(Code::kProtocol, "the job has answered something else than its stacks");
  }
  HVD_TRY_ASSIGN(const StacksAnswer answer, StacksAnswer::decode(frame->body));
  std::vector<RankStack> stacks;
  for (const RankStacks& read : answer.stacks) {
    stacks.push_back(stack_of(read));
  }
  std::sort(stacks.begin(), stacks.end(), [](const RankStack& a, const RankStack& b) { return a.rank < b.rank; });
  if (options.json) {
    std::cout << json_of(stacks) << "\n";
    return 0;
  }
  const LiveJob& job = found.job;
  std::vector<std::string> lines = stack_report(stacks, answer.running);
  std::cout << "job " << job.id << (job.name.empty() ? "" : " (" + job.name + ")") << ", " << lines.front() << "\n";
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::cout << lines[i] << "\n";
  }
  return 0;
}

}  // namespace hvd::cli
