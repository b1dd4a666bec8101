#include "runtime/mpi/mpi_comm.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/machine.h"
#include "runtime/mpi/mpi_process.h"

namespace hvd {
namespace {

// MPI offers nothing to sleep on. The wait first spins for messages that come soon. Then it yields the core, which the
// sender may need. After some milliseconds it sleeps, because others may have more use for the core.
constexpr unsigned kSpins = 2000;
constexpr unsigned kYields = 20000;
constexpr Duration kNap = std::chrono::microseconds(100);
// A check makes a system call, which costs as much as a small message.
constexpr unsigned kIdlePerClock = 64;
constexpr Duration kCheckEvery = std::chrono::milliseconds(1);
// The time for cancelling messages, which needs no other rank.
constexpr Duration kTakeBackTime = std::chrono::milliseconds(200);

Result<void> check_ranks(std::span<const int> ranks, int size) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  const bool is_twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= size || is_twice) {
    return Error(Code::kInvalid, "the ranks of a job must be different numbers from 0 to " + std::to_string(size - 1) +
                                     ", as mpirun has started them");
  }
  return {};
}

}  // namespace

Result<MpiComm> MpiComm::adopt(MpiLibrary& library, MpiHandle handle) {
  MpiComm comm(library, handle);
  HVD_TRY(library.return_errors(handle));
  HVD_TRY_ASSIGN(comm.rank_, library.rank(handle));
  HVD_TRY_ASSIGN(comm.size_, library.size(handle));
  return comm;
}

Result<MpiComm> MpiComm::copy_of(MpiLibrary& library, MpiHandle original, Deadline deadline) {
  const auto made = std::make_shared<MpiHandle>();
  HVD_TRY(MpiProcess::instance().run(
      "MPI_Comm_dup",
      [made, original, &library]() -> Result<void> {
        HVD_TRY_ASSIGN(*made, library.copy(original));
        return {};
      },
      deadline));
  return adopt(library, *made);
}

Result<MpiComm> MpiComm::among(MpiLibrary& library, std::span<const int> ranks, Deadline deadline) {
  HVD_TRY_ASSIGN(const int size, library.size(library.world()));
  HVD_TRY_ASSIGN(const int self, library.rank(library.world()));
  HVD_TRY(check_ranks(ranks, size));
  if (std::find(ranks.begin(), ranks.end(), self) == ranks.end()) {
    return Error(Code::kInvalid, "rank " + std::to_string(self) + " of mpirun is not among the ranks of this job");
  }
  const auto made = std::make_shared<MpiHandle>();
  HVD_TRY(MpiProcess::instance().run(
      "MPI_Comm_create_group",
      [made, own = std::vector<int>(ranks.begin(), ranks.end()), &library]() -> Result<void> {
        HVD_TRY_ASSIGN(*made, library.subset(library.world(), own));
        return {};
      },
      deadline));
  return adopt(library, *made);
}

MpiComm::MpiComm(MpiComm&& other) noexcept
    : library_(std::exchange(other.library_, nullptr)),
      comm_(other.comm_),
      rank_(other.rank_),
      size_(other.size_),
      is_broken_(other.is_broken_) {}

MpiComm::~MpiComm() {
  if (library_ != nullptr && !is_broken_ && MpiProcess::instance().is_usable()) {
    static_cast<void>(library_->free(comm_));
  }
}

Result<MpiMessage> MpiComm::send(const void* data, std::size_t bytes, int to, int tag) {
  auto request = library_->start_send(data, bytes, to, tag, comm_);
  if (!request.ok()) {
    return request.error().with_context("sending to rank " + std::to_string(to));
  }
  return MpiMessage{request.value(), to, false};
}

Result<MpiMessage> MpiComm::receive(void* data, std::size_t bytes, int from, int tag) {
  auto request = library_->start_receive(data, bytes, from, tag, comm_);
  if (!request.ok()) {
    return request.error().with_context("receiving from rank " + std::to_string(from));
  }
  return MpiMessage{request.value(), from, false};
}

Result<bool> MpiComm::test(MpiMessage& message) {
  if (!message.is_done) {
    const MpiHandle before = message.request;
    auto done = library_->test(message.request);
    if (!done.ok()) {
      message.is_done = message.request != before;  // MPI has freed it, and nobody may ask for it again
      return Error(Code::kLostPeer, "rank " + std::to_string(message.peer) + " over MPI: " + done.error().message());
    }
    message.is_done = done.value();
  }
  return message.is_done;
}

Result<void> MpiComm::pause(Idle& idle, Interrupt& interrupt) {
  ++idle.times;
  if (idle.times <= kSpins) {
    pause_briefly();
  } else if (idle.times <= kYields) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(kNap);
  }
  // A yielded core may come back late, so from then on each turn reads the clock.
  if (idle.times <= kSpins && idle.times % kIdlePerClock != 0) {
    return {};
  }
  const TimePoint now = std::chrono::steady_clock::now();
  if (now < idle.next_check) {
    return {};
  }
  const bool is_first = idle.next_check == TimePoint();
  idle.next_check = now + kCheckEvery;
  return is_first ? Result<void>() : interrupt.check();
}

Result<void> MpiComm::wait(std::span<MpiMessage> messages, Interrupt& interrupt) {
  Idle idle;
  for (MpiMessage& message : messages) {
    for (;;) {
      const auto is_done = test(message);
      const Result<void> goes_on = !is_done.ok()     ? Result<void>(is_done.error())
                                   : is_done.value() ? Result<void>()
                                                     : pause(idle, interrupt);
      if (!goes_on.ok()) {
        take_back(messages, goes_on.error());
        const bool is_late = goes_on.error().code() == Code::kTimeout;
        return is_late ? goes_on.error().with_context("waiting for rank " + std::to_string(message.peer))
                       : goes_on.error();
      }
      if (is_done.value()) {
        break;
      }
    }
  }
  return {};
}

void MpiComm::take_back(std::span<MpiMessage> messages, const Error& why) {
  is_broken_ = true;
  for (MpiMessage& message : messages) {
    if (!message.is_done) {
      static_cast<void>(library_->cancel(message.request));
    }
  }
  const Deadline deadline = Deadline::after(kTakeBackTime);
  for (MpiMessage& message : messages) {
    while (!message.is_done) {
      const MpiHandle before = message.request;
      const auto is_done = library_->test(message.request);
      message.is_done = is_done.ok() ? is_done.value() : message.request != before;
      if (!is_done.ok() || (!message.is_done && deadline.has_passed())) {
        MpiProcess::instance().spoil(why.message());
        return;
      }
      if (!message.is_done) {
        ::sched_yield();
      }
    }
  }
}

}  // namespace hvd
