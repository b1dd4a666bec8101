// SubsetStore is the Store of some ranks of a job, numbered from 0, on top of the store of all ranks. All ranks take
// part in each of its exchanges; those that are not in the subset call stay_out(). So the store of all needs no notion
// of subsets.
//
// Its waits also end when the engine learns of the job's end. A rank that fails alone during such a meeting tells the
// other engines, not their agents.
//
// Thread: as the store of all, which must outlive this.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/rendezvous/store.h"

namespace hvd {

class SubsetStore final : public Store {
 public:
  // `prefix` makes the keys of this subset unique in the job, and is used once. `ranks` is ascending.
  SubsetStore(Store& all, std::string prefix, std::vector<int> ranks, Interrupt& engine)
      : all_(all), prefix_(std::move(prefix)), ranks_(std::move(ranks)), engine_(engine) {}

  // Asks the engine instead of `interrupt`, because a Mesh passes one that never ends a wait.
  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& /*interrupt*/) override {
    HVD_TRY_ASSIGN(std::vector<std::string> values, all_.exchange_while(prefix_ + key, value, deadline, engine_));
    std::vector<std::string> of_set;
    for (const int rank : ranks_) {
      of_set.push_back(std::move(values[static_cast<std::size_t>(rank)]));
    }
    return of_set;
  }
  // Takes part in an exchange of the subset, for a rank that is not in it.
  Result<void> stay_out(const std::string& key, Deadline deadline) {
    HVD_TRY(all_.exchange_while(prefix_ + key, "", deadline, engine_));
    return {};
  }

  [[nodiscard]] const JobSecret& secret() const override { return all_.secret(); }
  // Always -1: the engine has more than one source of news, so the waiting thread asks it from time to time.
  [[nodiscard]] int notice_fd() const override { return -1; }
  std::optional<Notice> poll_notice() override {
    const auto alive = engine_.check();
    return alive.ok() ? all_.poll_notice() : Notice{alive.error().message()};
  }

 private:
  Store& all_;
  const std::string prefix_;
  const std::vector<int> ranks_;
  Interrupt& engine_;
};

}  // namespace hvd
