#include "runtime/observe/stall_watch.h"

#include <algorithm>
#include <map>

#include "runtime/base/cpu_list.h"

namespace hvd {
namespace {

constexpr Duration kLongestPeriod = std::chrono::seconds(15);
constexpr Duration kShortestPeriod = std::chrono::milliseconds(1);
constexpr int kLooksPerInterval = 10;
// The most names that a warning lists of tensors that wait for the same ranks; a model may have thousands.
constexpr std::size_t kMostNamed = 6;

std::string key_of(const Incomplete& tensor) {
  return std::to_string(tensor.process_set) + "/" + std::to_string(tensor.serial);
}

std::string seconds_text(Duration age) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(age).count() / 100;
  return tenths >= 100 ? std::to_string(tenths / 10) + " s"
                       : std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

struct Late {
  const Incomplete* tensor;
  Duration age;
};

std::string names_text(std::span<const Late> tensors) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostNamed, tensors.size()); ++i) {
    const Incomplete& tensor = *tensors[i].tensor;
    text += (i > 0 ? ", " : "") + tensor.what +
            (tensor.process_set == 0 ? "" : " of process set " + std::to_string(tensor.process_set));
  }
  return tensors.size() > kMostNamed ? text + " and " + std::to_string(tensors.size() - kMostNamed) + " more" : text;
}

// Groups the tensors by the missing ranks, since the user has to look at those; the oldest tensors come first.
std::string describe(const std::vector<Late>& late) {
  std::map<std::vector<int>, std::vector<Late>> by_ranks;
  for (const Late& one : late) {
    by_ranks[one.tensor->missing].push_back(one);
  }
  std::string text;
  for (auto& [ranks, tensors] : by_ranks) {
    std::stable_sort(tensors.begin(), tensors.end(), [](const Late& a, const Late& b) { return a.age > b.age; });
    text += (text.empty() ? "" : "; ") + names_text(tensors) + (tensors.size() == 1 ? " waits" : " wait") +
            " for rank" + (ranks.size() == 1 ? " " : "s ") + ranks_text(ranks) + " since " +
            seconds_text(tensors.front().age);
  }
  return text;
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  return cpu_list_text({ranks.begin(), ranks.end()});
}

Duration StallWatch::period() const {
  Duration shortest = kLongestPeriod * kLooksPerInterval;
  for (const Duration interval : {options_.warn_after, options_.end_after}) {
    shortest = interval > Duration::zero() ? std::min(shortest, interval) : shortest;
  }
  return std::max(kShortestPeriod, shortest / kLooksPerInterval);
}

StallWatch::Finding StallWatch::look(TimePoint clock_now, std::span<const Incomplete> incomplete) {
  const TimePoint now = time_.look(clock_now);
  std::unordered_map<std::string, Seen> still;
  std::vector<Late> to_tell;
  std::vector<Late> all;
  bool is_too_late = false;
  for (const Incomplete& tensor : incomplete) {
    const std::string key = key_of(tensor);
    const auto known = seen_.find(key);
    Seen seen = known == seen_.end() ? Seen{now, now} : known->second;
    const Duration age = now - seen.first;
    all.push_back({&tensor, age});
    is_too_late = is_too_late || (options_.end_after > Duration::zero() && age >= options_.end_after);
    if (options_.warn_after > Duration::zero() && now - seen.told >= options_.warn_after) {
      to_tell.push_back({&tensor, age});
      seen.told = now;
    }
    still.emplace(key, seen);
  }
  seen_ = std::move(still);
  Finding finding;
  if (!to_tell.empty()) {
    finding.warning = "stalled: " + describe(to_tell) +
                      ". These ranks have not asked for what the others wait for: they may be slower, or take another "
                      "branch of the program (HOROVOD_STALL_CHECK_TIME_SECONDS)";
  }
  if (is_too_late) {
    // It names all that waits: where ranks wait for each other, the other half of the cause may be younger.
    finding.end = "stalled: " + describe(all) + " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)";
  }
  return finding;
}

}  // namespace hvd
