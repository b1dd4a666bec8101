// SetTable: which process sets there are, for threads other than the engine's: what a call has to know before it can be
// submitted. Thread: any (mutex mu_); put() and remove(): engine only.
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

// Constant once made, but for the counts.
struct SetPlace {
  const std::vector<int> ranks;      // ascending
  const std::optional<RankMap> map;  // in which its ranks are numbered from 0; none where this rank is not a member
  const std::shared_ptr<QuickPath> quick;       // null: there is none
  const std::shared_ptr<SetCounters> counters;  // null where this rank is not a member
  // Operations that had no name, by kind: they go by the number of the call, the same on all ranks of the set.
  mutable std::array<std::atomic<std::uint64_t>, kOpKindCount> noname_counts{};
};

class SetTable {
 public:
  // Null when there is none of this number.
  [[nodiscard]] std::shared_ptr<const SetPlace> find(int process_set) const {
    if (process_set == 0) {
      return all_;
    }
    const std::lock_guard lock(mu_);
    const auto found = sets_.find(process_set);
    return found == sets_.end() ? nullptr : found->second;
  }
  // Ascending.
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
  // All ranks have joined: those that joined early have counted fewer unnamed operations than the others, and would
  // wait for each other under different names from here on. All begin anew. Only of all ranks: what was asked for in a
  // set before the join may still be in flight under its number. Before any rank of this process can submit again.
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
  std::shared_ptr<const SetPlace> all_;  // put before any other thread can ask, constant from then on
  // guarded by mu_
  mutable std::mutex mu_;
  std::map<int, std::shared_ptr<const SetPlace>> sets_;
};

}  // namespace hvd
