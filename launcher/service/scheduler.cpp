#include "launcher/service/scheduler.h"

#include <algorithm>
#include <tuple>

#include "runtime/base/text.h"

namespace hvd::launch {

std::vector<Start> plan_starts(std::vector<WaitingJob> jobs, const std::vector<ScheduledNode>& nodes,
                               std::vector<GrowingJob> growing) {
  std::sort(jobs.begin(), jobs.end(), [](const WaitingJob& a, const WaitingJob& b) {
    return std::tuple(-a.priority, a.id) < std::tuple(-b.priority, b.id);
  });
  std::vector<int> idle;
  int in_service = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    in_service += nodes[i].is_in_service ? 1 : 0;
    if (nodes[i].is_in_service && nodes[i].is_idle) {
      idle.push_back(static_cast<int>(i));
    }
  }
  std::vector<Start> starts;
  std::size_t given = 0;
  for (const WaitingJob& job : jobs) {
    if (job.node_count < 1 || job.node_count > in_service) {
      continue;
    }
    const auto wanted = static_cast<std::size_t>(job.node_count);
    if (idle.size() - given < wanted) {
      return starts;  // what is idle is kept for it
    }
    const auto first = idle.begin() + static_cast<std::ptrdiff_t>(given);
    starts.push_back({job.id, {first, first + job.node_count}});
    given += wanted;
    growing.push_back({job.id, job.priority, job.most - job.node_count});
  }
  std::sort(growing.begin(), growing.end(), [](const GrowingJob& a, const GrowingJob& b) {
    return std::tuple(-a.priority, a.id) < std::tuple(-b.priority, b.id);
  });
  for (const GrowingJob& job : growing) {
    const std::size_t more = std::min(idle.size() - given, static_cast<std::size_t>(std::max(job.room, 0)));
    if (more == 0) {
      continue;
    }
    auto start = std::find_if(starts.begin(), starts.end(), [&job](const Start& s) { return s.id == job.id; });
    start = start == starts.end() ? starts.insert(starts.end(), Start{job.id, {}}) : start;
    const auto first = idle.begin() + static_cast<std::ptrdiff_t>(given);
    start->nodes.insert(start->nodes.end(), first, first + static_cast<std::ptrdiff_t>(more));
    given += more;
  }
  return starts;
}

int priority_of(const std::string& word) {
  if (word == "low" || word == "high") {
    return word == "low" ? -1000 : 1000;
  }
  return std::clamp(parse_number<int>(word).value_or(0), -1000, 1000);
}

}  // namespace hvd::launch
