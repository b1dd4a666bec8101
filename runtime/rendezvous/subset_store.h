// SubsetStore: the Store of some of a job's ranks, numbered from 0, over that of all. All ranks take part in each of
// its exchanges, those beside them by stay_out(): so the store itself knows nothing of sets.
//
// Its waits end also when the engine hears of the job's end by means of its own: a rank that fails alone while it meets
// the others tells their engines, not their agents.
//
// Thread: as the store of all, which must outlive it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/rendezvous/store.h"

namespace hvd {

class SubsetStore final : public Store {
 public:
  // `prefix`: makes the keys of these ranks others than anybody else's; used once. `ranks`: ascending.
  SubsetStore(Store& all, std::string prefix, std::vector<int> ranks, Interrupt& engine)
      : all_(all), prefix_(std::move(prefix)), ranks_(std::move(ranks)), engine_(engine) {}

  // Asks the engine in place of `interrupt`, since that of whoever meets over a store is none.
  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& /*interrupt*/) override {
    HVD_TRY_ASSIGN(std::vector<std::string> values, all_.exchange_while(prefix_ + key, value, deadline, engine_));
    std::vector<std::string> of_set;
    for (const int rank : ranks_) {
      of_set.push_back(std::move(values[static_cast<std::size_t>(rank)]));
    }
    return of_set;
  }
  // A rank beside them, for an exchange of theirs.
  Result<void> stay_out(const std::string& key, Deadline deadline) {
    HVD_TRY(all_.exchange_while(prefix_ + key, "", deadline, engine_));
    return {};
  }

  [[nodiscard]] const JobSecret& secret() const override { return all_.secret(); }
  // None: the engine has more than one source of news, so whoever waits asks it from time to time.
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
