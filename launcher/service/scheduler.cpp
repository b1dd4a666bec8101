#include "launcher/service/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

bool has(const std::vector<int>& nodes, int node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// Takes at most so many nodes from those that are idle, in their order, and none that is avoided.
std::vector<int> take(std::vector<int>& idle, std::size_t most, const std::vector<int>& avoided) {
  std::vector<int> taken;
  std::erase_if(idle, [&](int node) {
    const bool is_taken = taken.size() < most && !has(avoided, node);
    if (is_taken) {
      taken.push_back(node);
    }
    return is_taken;
  });
  return taken;
}

}  // namespace

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
  bool does_one_wait = false;
  for (const WaitingJob& job : jobs) {
    const auto is_kept_from_it = [&nodes](int node) { return nodes[static_cast<std::size_t>(node)].is_in_service; };
    const auto avoided = std::count_if(job.avoided.begin(), job.avoided.end(), is_kept_from_it);
    if (job.node_count < 1 || job.node_count > in_service - avoided) {
      continue;
    }
    const auto wanted = static_cast<std::size_t>(job.node_count);
    std::vector<int> taken = take(idle, wanted, job.avoided);
    if (taken.size() < wanted) {
      does_one_wait = true;  // what is idle is kept for it; only what it avoids is left
      continue;
    }
    starts.push_back({job.id, std::move(taken)});
    growing.push_back({job.id, job.priority, job.most - job.node_count, job.avoided});
  }
  if (does_one_wait) {
    return starts;
  }
  std::sort(growing.begin(), growing.end(), [](const GrowingJob& a, const GrowingJob& b) {
    return std::tuple(-a.priority, a.id) < std::tuple(-b.priority, b.id);
  });
  for (const GrowingJob& job : growing) {
    const std::vector<int> more = take(idle, static_cast<std::size_t>(std::max(job.room, 0)), job.avoided);
    if (more.empty()) {
      continue;
    }
    auto start = std::find_if(starts.begin(), starts.end(), [&job](const Start& s) { return s.id == job.id; });
    start = start == starts.end() ? starts.insert(starts.end(), Start{job.id, {}}) : start;
    start->nodes.insert(start->nodes.end(), more.begin(), more.end());
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
