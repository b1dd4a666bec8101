// SetTable lists the process sets for threads other than the engine's: a call needs this to check its arguments before
// it submits an operation. Thread: any (mutex mu_); put() and remove(): engine only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/op_kind.h"
#include "runtime/core/rank_map.h"
#include "runtime/execute/quick_path.h"
#include "runtime/observe/counters.h"

namespace hvd {

// SetPlace is one process set as this rank sees it. It is constant once made, except for the numbers of unnamed
// operations.
struct SetPlace {
  SetPlace(std::vector<int> of, std::optional<RankMap> own, std::shared_ptr<QuickPath> path,
           std::shared_ptr<SetCounters> counted)
      : ranks(std::move(of)), map(std::move(own)), quick(std::move(path)), counters(std::move(counted)) {}

  const std::vector<int> ranks;                 // ascending
  const std::optional<RankMap> map;             // numbers the set's ranks from 0; none if this rank is not a member
  const std::shared_ptr<QuickPath> quick;       // null: there is none
  const std::shared_ptr<SetCounters> counters;  // null if this rank is not a member

  // Returns the number of the next unnamed operation of this kind, which is the same on all ranks of the set. Thread:
  // any.
  [[nodiscard]] std::uint64_t next_noname(OpKind kind) const {
    const std::lock_guard lock(noname_mu);
    Nonames& of_kind = nonames[static_cast<std::size_t>(kind)];
    of_kind.own = std::max(of_kind.own, of_kind.of_others) + 1;
    return of_kind.own;
  }
  // The operation with this number was refused, so it is none, and the next one has its number. Where another thread
  // has taken a number since, it stays used. Thread: any.
  void give_back_noname(OpKind kind, std::uint64_t number) const {
    const std::lock_guard lock(noname_mu);
    Nonames& of_kind = nonames[static_cast<std::size_t>(kind)];
    of_kind.own -= of_kind.own == number ? 1U : 0U;
  }
  // The operation with this number was done without this rank, which had joined. Thread: any.
  void note_noname(OpKind kind, std::uint64_t number) const {
    const std::lock_guard lock(noname_mu);
    Nonames& of_kind = nonames[static_cast<std::size_t>(kind)];
    of_kind.of_others = std::max(of_kind.of_others, number);
  }
  // The next operation of each kind is the first. Thread: any.
  void restart_nonames() const {
    const std::lock_guard lock(noname_mu);
    nonames = {};
  }

  struct Nonames {
    std::uint64_t own = 0;        // the last number that this rank has taken
    std::uint64_t of_others = 0;  // the last one that was done without it
  };
  mutable std::mutex noname_mu;
  mutable std::array<Nonames, kOpKindCount> nonames{};  // guarded by noname_mu
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
    auto made =
        std::make_shared<const SetPlace>(std::move(ranks), std::move(map), std::move(quick), std::move(counters));
    if (process_set == 0) {
      all_ = std::move(made);
      return;
    }
    const std::lock_guard lock(mu_);
    sets_[process_set] = std::move(made);
  }
  // Restarts the counts when all ranks have joined. Ranks that joined early have counted fewer unnamed operations, and
  // would from now on wait for the others under different names. Only the counts of the set of all ranks restart,
  // because an operation that was started in another set before the join may still be running under its number: those
  // of other sets follow by note_noname(). Call it before any rank of this process can submit again.
  void restart_counts() { all_->restart_nonames(); }
  // The others have done this operation without this rank, which had joined. If it is an unnamed one, it counts here
  // too.
  void note_noname(int process_set, OpKind kind, std::string_view name) {
    const auto set = find(process_set);
    const std::uint64_t number = noname_number(kind, name);
    if (set != nullptr && number != 0) {
      set->note_noname(kind, number);
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
