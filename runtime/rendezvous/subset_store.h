// SubsetStore: the Store of some of a job's ranks, numbered from 0, over that of all. All ranks take part in each of
// its exchanges, those beside them by stay_out(): so the store itself knows nothing of sets.
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
  SubsetStore(Store& all, std::string prefix, std::vector<int> ranks)
      : all_(all), prefix_(std::move(prefix)), ranks_(std::move(ranks)) {}

  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& value,
                                            Deadline deadline) override {
    HVD_TRY_ASSIGN(std::vector<std::string> values, all_.exchange(prefix_ + key, value, deadline));
    std::vector<std::string> of_set;
    for (const int rank : ranks_) {
      of_set.push_back(std::move(values[static_cast<std::size_t>(rank)]));
    }
    return of_set;
  }
  // A rank beside them, for an exchange of theirs.
  Result<void> stay_out(const std::string& key, Deadline deadline) {
    HVD_TRY(all_.exchange(prefix_ + key, "", deadline));
    return {};
  }

  [[nodiscard]] const JobSecret& secret() const override { return all_.secret(); }
  [[nodiscard]] int notice_fd() const override { return all_.notice_fd(); }
  std::optional<Notice> poll_notice() override { return all_.poll_notice(); }

 private:
  Store& all_;
  const std::string prefix_;
  const std::vector<int> ranks_;
};

}  // namespace hvd
