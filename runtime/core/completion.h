// Completion: what a caller waits on, one per operation. The engine finishes it once; any number of threads may wait.
//
// Thread: any (mutex mu_). What finish() stored is constant from then on, so readers after wait() need no lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/result.h"

namespace hvd {

// Memory that the runtime allocated for an operation's result (allgather, reducescatter, alltoall), and its shape.
struct OwnedOutput {
  std::unique_ptr<std::byte[]> data;
  std::size_t size_bytes = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> received_splits{};  // alltoall: rows from each rank

  // Uninitialised memory, or kResource: an allgather can ask for more than there is, and that must be an error of
  // this job and not an exception on the engine's thread.
  static Result<OwnedOutput> allocate(std::size_t size_bytes, std::vector<std::int64_t> shape);
};

class Completion {
 public:
  Completion() = default;
  ~Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Once only.
  void finish(Result<void> result);
  void finish(OwnedOutput output);

  [[nodiscard]] bool is_done() const { return done_.load(std::memory_order_acquire); }
  // Blocks until finished.
  const Result<void>& wait() const;
  // Only after wait(); nothing was allocated for most operations.
  [[nodiscard]] const std::optional<OwnedOutput>& output() const;

 private:
  void settle(Result<void> result, std::optional<OwnedOutput> output);

  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  std::atomic<bool> done_ = false;
  // written under mu_ before done_, constant afterwards
  Result<void> result_;
  std::optional<OwnedOutput> output_;
};

}  // namespace hvd
