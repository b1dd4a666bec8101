#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options/job_settings.h"
#include "cli/service_place.h"
#include "launcher/live/live_client.h"
#include "launcher/stacks/rank_stack.h"
#include "launcher/stacks/stack_tree.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

// Longer than hvdrun waits for its agents.
constexpr auto kPatience = std::chrono::seconds(30);

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// A submitted job is also known by its number, which only its record has.
std::string uuid_of_number(const std::string& reference) {
  if (!is_number(reference)) {
    return "";
  }
  auto place = ServicePlace::open();
  const auto job = place.ok() ? place.value().job(reference) : Result<JobRecord>(place.error());
  return job.ok() ? job.value().uuid : "";
}

Result<FoundJob> find_job(const std::string& reference) {
  HVD_TRY_ASSIGN(const std::vector<FoundJob> jobs, running_jobs(LiveFolder::of(own_environment())));
  const std::string uuid = uuid_of_number(reference);
  const bool is_submitted = !uuid.empty() && std::any_of(jobs.begin(), jobs.end(), [&uuid](const FoundJob& found) {
    return found.job.uuid == uuid;
  });
  return choose_job(jobs, is_submitted ? uuid : reference);
}

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
  HVD_TRY_ASSIGN(const FoundJob found, find_job(options.job));
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
