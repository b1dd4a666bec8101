#include "launcher/stacks/stack_tree.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "runtime/base/cpu_list.h"

namespace hvd::launch {
namespace {

using Group = std::vector<const RankStack*>;

std::string ranks_text(const Group& group) {
  std::vector<std::int32_t> ranks;
  for (const RankStack* stack : group) {
    ranks.push_back(stack->rank);
  }
  return "[" + cpu_list_text(ranks) + "]";
}

// Divides a group by the frame at this depth. Groups follow by their size, then by their first rank.
std::vector<Group> divided(const Group& group, std::size_t depth) {
  std::map<std::string, Group> by_frame;
  for (const RankStack* stack : group) {
    by_frame[depth < stack->frames.size() ? stack->frames[depth] : ""].push_back(stack);
  }
  std::vector<Group> groups;
  for (auto& [frame, part] : by_frame) {
    groups.push_back(std::move(part));
  }
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front()->rank < b.front()->rank;
  });
  return groups;
}

void add_branch(const Group& group, std::size_t depth, std::size_t level, bool names_host,
                std::vector<std::string>& lines) {
  std::string chain;
  std::vector<Group> next{group};
  for (; next.size() == 1 && depth < group.front()->frames.size(); ++depth) {
    chain += (chain.empty() ? "" : " > ") + group.front()->frames[depth];
    next = divided(group, depth + 1);
  }
  const RankStack& first = *group.front();
  const bool is_alone = names_host && group.size() == 1;
  lines.push_back(
      std::string(2 * level, ' ') + ranks_text(group) + " " + (chain.empty() ? "(here)" : chain) +
      (is_alone ? "  (" + (first.host.empty() ? "" : first.host + ", ") + "pid " + std::to_string(first.pid) + ")"
                : ""));
  if (next.size() > 1) {
    for (const Group& part : next) {
      add_branch(part, depth, level + 1, true, lines);
    }
  }
}

// Takes a reason that several ranks share out of their lines, and returns a line for each such reason.
std::vector<std::string> take_shared_reasons(std::vector<RankStack>& stacks) {
  std::map<std::string, std::vector<std::int32_t>> ranks;  // by reason
  for (const RankStack& stack : stacks) {
    if (!stack.is_read && !stack.why.empty()) {
      ranks[stack.why].push_back(stack.rank);
    }
  }
  for (RankStack& stack : stacks) {
    if (const auto found = ranks.find(stack.why); found != ranks.end() && found->second.size() > 1) {
      stack.frames = {no_stack_line("", stack.known)};
    }
  }
  std::vector<std::string> lines;
  for (auto& [why, sharing] : ranks) {
    if (sharing.size() > 1) {
      std::sort(sharing.begin(), sharing.end());
      lines.push_back("no stacks of ranks " + cpu_list_text(sharing) + ": " + why);
    }
  }
  return lines;
}

}  // namespace

std::vector<std::string> stack_tree(std::vector<RankStack> stacks) {
  std::sort(stacks.begin(), stacks.end(), [](const RankStack& a, const RankStack& b) { return a.rank < b.rank; });
  Group all;
  for (const RankStack& stack : stacks) {
    all.push_back(&stack);
  }
  std::vector<std::string> lines;
  for (const Group& group : divided(all, 0)) {
    add_branch(group, 0, 0, stacks.size() > 1, lines);
  }
  return lines;
}

std::vector<std::string> stack_report(std::vector<RankStack> stacks, int running) {
  const std::string all = std::to_string(running) + (running == 1 ? " running rank" : " running ranks");
  const auto count = static_cast<int>(stacks.size());
  std::vector<std::string> lines = {count == running ? "stacks of " + all
                                                     : "stacks of " + std::to_string(count) + " of " + all};
  const std::vector<std::string> reasons = take_shared_reasons(stacks);
  for (const std::string& line : stack_tree(std::move(stacks))) {
    lines.push_back("  " + line);
  }
  for (const std::string& line : reasons) {
    lines.push_back("  " + line);
  }
  return lines;
}

}  // namespace hvd::launch
