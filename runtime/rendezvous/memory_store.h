// MemoryStore is the Store of ranks that are threads of one process, in tests.
//
// All its stores share one MemoryHub. The hub also replaces the agent: notify() tells ranks that the job is over.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/rendezvous/exchange_board.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

// Thread: any (mutex mu_).
class MemoryHub {
 public:
  static Result<std::shared_ptr<MemoryHub>> create(int size, const JobSecret& secret);

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  void notify(int rank, const std::string& cause);
  void notify_all(const std::string& cause);

 private:
  friend class MemoryStore;

  struct PerRank {
    Fd event_fd;
    std::optional<std::string> over;                        // the first cause; exchanges fail with it from then on
    std::map<std::string, ExchangeBoard::Values> finished;  // complete exchanges by key, until this rank takes them
  };

  MemoryHub(int size, const JobSecret& secret);
  void notify_locked(int rank, const std::string& cause);
  Result<ExchangeBoard::Values> exchange(int rank, const std::string& key, const std::string& value, Deadline deadline,
                                         Interrupt& interrupt);
  [[nodiscard]] Error timed_out(const std::string& key) const;
  std::optional<Notice> poll_notice(int rank);

  // constant after construction
  const JobSecret secret_;
  // guarded by mu_
  std::mutex mu_;
  std::condition_variable changed_;
  ExchangeBoard board_;
  std::vector<PerRank> ranks_;
};

// Thread: as Store; several stores of one hub may be used at once.
class MemoryStore final : public Store {
 public:
  // The hub is a shared_ptr because it lives as long as the last rank that uses it.
  MemoryStore(std::shared_ptr<MemoryHub> hub, int rank);

  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override;
  [[nodiscard]] const JobSecret& secret() const override { return hub_->secret_; }
  [[nodiscard]] int notice_fd() const override;
  std::optional<Notice> poll_notice() override;

 private:
  std::shared_ptr<MemoryHub> hub_;
  int rank_;
};

}  // namespace hvd
