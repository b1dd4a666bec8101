// SetTable lists the process sets for threads other than the engine's: a call needs this to check its arguments before
// it submits an operation. Thread: any (mutex mu_); put() and remove(): engine only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/core/op_kind.h"
#include "runtime/core/rank_map.h"
#include "runtime/execute/quick_path.h"
#include "runtime/observe/counters.h"

namespace hvd {

// SetPlace is one process set as this rank sees it. It is constant once made, except for the counts.
struct SetPlace {
  const std::vector<int> ranks;                 // ascending
  const std::optional<RankMap> map;             // numbers the set's ranks from 0; none if this rank is not a member
  const std::shared_ptr<QuickPath> quick;       // null: there is none
  const std::shared_ptr<SetCounters> counters;  // null if this rank is not a member
  // The number of unnamed operations, by kind. An unnamed operation is named by its count, which is the same on all
  // ranks of the set.
  mutable std::array<std::atomic<std::uint64_t>, kOpKindCount> noname_counts{};
};

class SetTable {
 public:
  // Returns null if there is no set of this number.
  [[nodiscard]] std::shared_ptr<const SetPlace> find(int process_set) const {
    if (process_set == 0) {
      return all_;
    }
    const std::lock_guard lock(mu_);
    const auto found = sets_.find(process_set);
    return found == sets_.end() ? nullptr : found->second;
  }
  // Returns all numbers, ascending.
  [[nodiscard]] std::vector<int> numbers() const {
    const std::lock_guard lock(mu_);
    std::vector<int> all = {0};
    for (const auto& [number, set] : sets_) {
      all.push_back(number);
    }
    return all;
  }
  void put(int process_set, std::vector<int> ranks, std::optional<RankMap> map, std::shared_ptr<QuickPath> quick,
           std::shared_ptr<SetCounters> counters) {
    std::shared_ptr<const SetPlace> made(
        new SetPlace{std::move(ranks), std::move(map), std::move(quick), std::move(counters)});
    if (process_set == 0) {
      all_ = std::move(made);
      return;
    }
    const std::lock_guard lock(mu_);
    sets_[process_set] = std::move(made);
  }
  // Restarts the counts when all ranks have joined. Ranks that joined early have counted fewer unnamed operations, and
  // would from now on wait for the others under different names. Only the counts of the set of all ranks restart,
  // because an operation that was started in another set before the join may still be running under its number. Call it
  // before any rank of this process can submit again.
  void restart_counts() {
    for (auto& count : all_->noname_counts) {
      count = 0;
    }
  }
  void remove(int process_set) {
    const std::lock_guard lock(mu_);
    sets_.erase(process_set);
  }

 private:
  std::shared_ptr<const SetPlace> all_;  // put before any other thread can ask; constant from then on
  // guarded by mu_
  mutable std::mutex mu_;
  std::map<int, std::shared_ptr<const SetPlace>> sets_;
};

}  // namespace hvd
