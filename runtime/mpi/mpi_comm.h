// MpiComm: the ranks of a job as a communicator of our own: a copy of the program's, so that no message of ours meets
// one of its. Messages are started, and waited for together; a wait gives up when the Interrupt says so, which no
// collective of MPI's own could.
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

// A message on its way. `request` is gone once it is done.
struct MpiMessage {
  MpiHandle request{};
  int peer = 0;
  bool is_done = true;
};

class MpiComm {
 public:
  // A copy of `original`; all its ranks call at once.
  static Result<MpiComm> copy_of(MpiLibrary& library, MpiHandle original, Deadline deadline);
  // These ranks of the world (none twice, any order), numbered in this order; they all call at once.
  static Result<MpiComm> among(MpiLibrary& library, std::span<const int> ranks, Deadline deadline);
  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&&) = delete;
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  // The memory must stay until the message is done; of a wait that fails it must stay as long as the process, unless
  // wait() says that all was cancelled. At most MpiLibrary::kMaxMessageBytes.
  Result<MpiMessage> send(const void* data, std::size_t bytes, int to, int tag);
  Result<MpiMessage> receive(void* data, std::size_t bytes, int from, int tag);
  // Whether it is done, without waiting.
  Result<bool> test(MpiMessage& message);
  // Until all are done. On failure tries to take the others back; what cannot be taken back spoils the process's MPI.
  Result<void> wait(std::span<MpiMessage> messages, Interrupt& interrupt);
  // For callers who test themselves: called when nothing has come, again and again.
  struct Idle {
    unsigned times = 0;
    TimePoint next_check{};
  };
  static Result<void> pause(Idle& idle, Interrupt& interrupt);
  // Takes back what is not done, or spoils the process's MPI.
  void take_back(std::span<MpiMessage> messages, const Error& why);

 private:
  MpiComm(MpiLibrary& library, MpiHandle comm) : library_(&library), comm_(comm) {}
  static Result<MpiComm> adopt(MpiLibrary& library, MpiHandle comm);

  MpiLibrary* library_;
  MpiHandle comm_;
  int rank_ = 0;
  int size_ = 1;
  bool is_broken_ = false;  // messages were taken back; what is freed now could be another rank's loss
};

// A wait's limit where there is no engine to ask.
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
