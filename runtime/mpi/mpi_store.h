// MpiStore is the Store of ranks that mpirun or srun has started without hvdrun: they find each other through MPI.
//
// Thread: as Store. The exchange for a new process set runs on the thread that runs the engine, which may be any. So
// process sets need at least MPI_THREAD_SERIALIZED. Joining does not, since the program's thread waits while another
// one joins. The joining thread need not be MPI's: Python's hvd.init() joins on a thread of its own, which then ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/mpi/mpi_comm.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class MpiStore final : public Store {
 public:
  // `news` is the store of a launcher that is present too, whose notices this store passes on; it may be null.
  // `launcher_ranks` is the launcher's number of each rank of `comm`, or -1; empty: they are the same.
  MpiStore(std::shared_ptr<MpiComm> comm, const JobSecret& secret, std::unique_ptr<Store> news,
           std::vector<int> launcher_ranks);

  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override;
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  [[nodiscard]] int notice_fd() const override { return news_ == nullptr ? -1 : news_->notice_fd(); }
  void tell(const FailureNews& news) override {
    if (news_ != nullptr) {
      news_->tell(for_launcher(news));
    }
  }
  void tell_apart(const FailureNews& news) const override {
    if (news_ != nullptr) {
      news_->tell_apart(for_launcher(news));
    }
  }
  std::optional<Notice> poll_notice() override { return news_ == nullptr ? std::nullopt : news_->poll_notice(); }

 private:
  [[nodiscard]] FailureNews for_launcher(FailureNews news) const;

  std::shared_ptr<MpiComm> comm_;
  const JobSecret secret_;
  std::unique_ptr<Store> news_;
  const std::vector<int> launcher_ranks_;
  const std::shared_ptr<const char> maker_;  // the thread that joined
};

// Returns the texts of all ranks of `comm`, in their order; all call at the same time.
Result<std::vector<std::string>> gather_texts(MpiComm& comm, const std::string& own, Interrupt& interrupt);

}  // namespace hvd
