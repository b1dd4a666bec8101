#include "runtime/rendezvous/memory_store.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr auto kInterruptEvery = std::chrono::milliseconds(100);

}  // namespace

Result<std::shared_ptr<MemoryHub>> MemoryHub::create(int size, const JobSecret& secret) {
  std::shared_ptr<MemoryHub> hub(new MemoryHub(size, secret));
  for (PerRank& rank : hub->ranks_) {
    rank.event_fd = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!rank.event_fd.is_open()) {
      return Error::from_errno("eventfd");
    }
  }
  return hub;
}

MemoryHub::MemoryHub(int size, const JobSecret& secret)
    : secret_(secret), board_(size), ranks_(static_cast<std::size_t>(size)) {}

void MemoryHub::notify_locked(int rank, const std::string& cause) {
  PerRank& target = ranks_[static_cast<std::size_t>(rank)];
  if (!target.over) {
    target.over = cause;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(target.event_fd.get(), &one, sizeof one);
}

void MemoryHub::notify(int rank, const std::string& cause) {
  const std::lock_guard<std::mutex> lock(mu_);
  notify_locked(rank, cause);
  changed_.notify_all();
}

void MemoryHub::notify_all(const std::string& cause) {
  const std::lock_guard<std::mutex> lock(mu_);
  for (int rank = 0; rank < size(); ++rank) {
    notify_locked(rank, cause);
  }
  changed_.notify_all();
}

Result<ExchangeBoard::Values> MemoryHub::exchange(int rank, const std::string& key, const std::string& value,
                                                  Deadline deadline, Interrupt& interrupt) {
  std::unique_lock<std::mutex> lock(mu_);
  PerRank& self = ranks_[static_cast<std::size_t>(rank)];
  if (self.over) {
    return Error(Code::kLostPeer, *self.over);
  }
  HVD_TRY_ASSIGN(const auto complete, board_.post(rank, key, value));
  if (complete) {
    for (PerRank& each : ranks_) {
      each.finished.insert_or_assign(key, *complete);
    }
    changed_.notify_all();
  }
  const auto is_settled = [&] { return self.finished.count(key) != 0 || self.over.has_value(); };
  Patience patience(deadline);
  while (!is_settled()) {
    if (patience.is_over()) {
      return timed_out(key);
    }
    lock.unlock();
    HVD_TRY(interrupt.check());
    interrupt.note_sleep();
    lock.lock();
    changed_.wait_until(lock, std::min(patience.until().at(), Deadline::after(kInterruptEvery).at()), is_settled);
  }
  if (self.over) {
    return Error(Code::kLostPeer, *self.over);
  }
  return std::move(self.finished.extract(key).mapped());
}

Error MemoryHub::timed_out(const std::string& key) const {
  std::string who;
  for (const int missing : board_.missing(key)) {
    who += (who.empty() ? "" : ", ") + std::to_string(missing);
  }
  return Error(Code::kTimeout, "waiting for rank " + who + " to exchange '" + key + "' timed out");
}

std::optional<Notice> MemoryHub::poll_notice(int rank) {
  const std::lock_guard<std::mutex> lock(mu_);
  PerRank& self = ranks_[static_cast<std::size_t>(rank)];
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(self.event_fd.get(), &count, sizeof count);
  return self.over ? std::optional<Notice>(Notice{*self.over}) : std::nullopt;
}

MemoryStore::MemoryStore(std::shared_ptr<MemoryHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {
  HVD_CHECK(rank >= 0 && rank < hub_->size());
}

Result<std::vector<std::string>> MemoryStore::exchange_while(const std::string& key, const std::string& value,
                                                             Deadline deadline, Interrupt& interrupt) {
  return hub_->exchange(rank_, key, value, deadline, interrupt);
}

int MemoryStore::notice_fd() const {
  return hub_->ranks_[static_cast<std::size_t>(rank_)].event_fd.get();
}

std::optional<Notice> MemoryStore::poll_notice() {
  return hub_->poll_notice(rank_);
}

}  // namespace hvd
