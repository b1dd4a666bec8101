// MpiStore: the Store of ranks that mpirun or srun has started without hvdrun: they find each other by MPI.
//
// Thread: as Store. An exchange of a new process set is made by whoever turns the engine, so that MPI must have been
// started with MPI_THREAD_SERIALIZED at least for those; joining needs no such thing, since the program's thread waits
// for whoever joins. The latter need not be MPI's thread: hvd.init() of Python joins on one of its own, which ends
// then.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/mpi/mpi_comm.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class MpiStore final : public Store {
 public:
  // `news`: of a launcher that is there too, whose notices this store hands on; may be null.
  MpiStore(std::shared_ptr<MpiComm> comm, const JobSecret& secret, std::unique_ptr<Store> news);

  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override;
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  [[nodiscard]] int notice_fd() const override { return news_ == nullptr ? -1 : news_->notice_fd(); }
  void tell(const FailureNews& news) override {
    if (news_ != nullptr) {
      news_->tell(news);
    }
  }
  std::optional<Notice> poll_notice() override { return news_ == nullptr ? std::nullopt : news_->poll_notice(); }

 private:
  std::shared_ptr<MpiComm> comm_;
  const JobSecret secret_;
  std::unique_ptr<Store> news_;
  const std::thread::id maker_;  // that joined; the system may give its id to a later thread
};

// The texts of all ranks of `comm`, in their order; all call at once.
Result<std::vector<std::string>> gather_texts(MpiComm& comm, const std::string& own, Interrupt& interrupt);

}  // namespace hvd
