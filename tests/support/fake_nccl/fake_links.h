// The links between the ranks of a communicator of the fake NCCL: a socket for each two of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/fd.h"

namespace hvd::fake {

// What goes to or comes from a rank. Both sides of two ranks name the same sizes in the same order.
struct Part {
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Thread: one at a time, but for abort().
class Links {
 public:
  enum class End { kDone, kAborted, kLost, kMismatch };

  Links(int rank, int size);
  // Until all ranks have come under this name. `half_come` is called once those before this one have.
  End connect(const std::string& name, void (*half_come)());
  // Until all of it is through. `half_sent` is called once about half of what this rank sends has gone.
  End move(std::vector<Part> sent, std::vector<Part> received, void (*half_sent)());
  // What every rank has, in the order of ranks.
  End gather(const void* data, std::size_t bytes, std::vector<std::vector<std::uint8_t>>& all, void (*half_sent)());
  // Blocks until abort().
  void wait_for_abort();
  void abort();

 private:
  struct Flow;
  Fd listen(const std::string& name) const;
  Fd call(const std::string& name) const;
  [[nodiscard]] bool is_aborted(int wait_ms) const;
  End step(std::vector<Flow>& flows, std::size_t& sent_bytes);

  const int rank_;
  const int size_;
  std::vector<Fd> peers_;  // [size]
  Fd abort_event_;
};

}  // namespace hvd::fake
