// MpiComm is a communicator of the job's ranks: a copy of the program's, so that our messages cannot mix with the
// program's. Messages are started, and waited for together. A wait gives up when the Interrupt says so, which no
// collective of MPI could do.
//
// Move-only. Thread: one at a time; with MPI_THREAD_SERIALIZED or more that may be any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"
#include "runtime/mpi/mpi_library.h"

namespace hvd {

// MpiMessage is a message in progress. `request` is invalid once it is done.
struct MpiMessage {
  MpiHandle request{};
  int peer = 0;
  bool is_done = true;
};

class MpiComm {
 public:
  // Copies `original`; all its ranks call this at the same time.
  static Result<MpiComm> copy_of(MpiLibrary& library, MpiHandle original, Deadline deadline);
  // Makes a communicator of these ranks of the world (none twice, any order), numbered in this order; they all call at
  // the same time.
  static Result<MpiComm> among(MpiLibrary& library, std::span<const int> ranks, Deadline deadline);
  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&&) = delete;
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // The memory must stay valid until the message is done. If a wait fails, it must stay valid as long as the process,
  // unless wait() says that all was cancelled. At most MpiLibrary::kMaxMessageBytes.
  Result<MpiMessage> send(const void* data, std::size_t bytes, int to, int tag);
  Result<MpiMessage> receive(void* data, std::size_t bytes, int from, int tag);
  // Returns whether the message is done, without waiting.
  Result<bool> test(MpiMessage& message);
  // Waits until all are done. On failure it tries to cancel the others; a message that cannot be cancelled makes MPI
  // unusable for the process.
  Result<void> wait(std::span<MpiMessage> messages, Interrupt& interrupt);
  // For callers that call test() themselves: they call pause() repeatedly while nothing arrives.
  struct Idle {
    unsigned times = 0;
    TimePoint next_check{};
  };
  static Result<void> pause(Idle& idle, Interrupt& interrupt);
  // Cancels messages that are not done, or marks the process's MPI as unusable.
  void take_back(std::span<MpiMessage> messages, const Error& why);

 private:
  MpiComm(MpiLibrary& library, MpiHandle comm) : library_(&library), comm_(comm) {}
  static Result<MpiComm> adopt(MpiLibrary& library, MpiHandle comm);

  MpiLibrary* library_;
  MpiHandle comm_;
  int rank_ = 0;
  int size_ = 1;
  bool is_broken_ = false;  // messages were cancelled, so freeing the communicator could harm another rank
};

// DeadlineInterrupt limits a wait while there is no engine to ask.
class DeadlineInterrupt final : public Interrupt {
 public:
  explicit DeadlineInterrupt(Deadline deadline) : patience_(deadline) {}
  Result<void> check() override {
    if (patience_.is_over()) {
      return Error(Code::kTimeout, "the other ranks have not come in time");
    }
    return {};
  }

 private:
  Patience patience_;
};

}  // namespace hvd
