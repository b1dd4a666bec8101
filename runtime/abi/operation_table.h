// OperationTable gives the operations of a context handles, by which C callers name them.
//
// Thread: any (mutex mu_).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "hvd/hvd.h"
#include "runtime/base/result.h"
#include "runtime/core/block_pool.h"
#include "runtime/core/completion.h"
#include "runtime/execute/quick_path.h"

namespace hvd {

// Operation is what a handle names. A thread that waits keeps a reference, so that hvd_release or the end of the
// context in another thread does not free it.
struct Operation {
  std::shared_ptr<Completion> completion;
  void* output = nullptr;
  std::size_t size_bytes = 0;
  void* stream = nullptr;  // of the device that holds the result
  std::array<std::int64_t, HVD_MAX_DIMS> extents{};
  std::size_t ndim = 0;

  // The shape of the output, if the output is the caller's memory.
  [[nodiscard]] std::span<const std::int64_t> shape() const { return std::span(extents).first(ndim); }
  void set_shape(std::span<const std::int64_t> from) {
    std::copy(from.begin(), from.end(), extents.begin());
    ndim = from.size();
  }
};

class OperationTable {
 public:
  // Makes an operation to be filled in and kept. Its memory is that of an earlier one where there is one.
  std::shared_ptr<Operation> make();
  // Makes an operation that was done at once.
  std::shared_ptr<const Operation> make_done(const QuickOp& op);

  // Returns a handle, which no operation of this process has had before.
  std::int64_t keep(std::shared_ptr<const Operation> operation);
  // kNotFound: no operation has this handle any more.
  Result<std::shared_ptr<const Operation>> find(std::int64_t handle);
  void forget(std::int64_t handle);

 private:
  const std::shared_ptr<BlockPool> operation_blocks_ = std::make_shared<BlockPool>();
  const std::shared_ptr<BlockPool> completion_blocks_ = std::make_shared<BlockPool>();
  // guarded by mu_
  std::mutex mu_;
  using Operations =
      std::unordered_map<std::int64_t, std::shared_ptr<const Operation>, std::hash<std::int64_t>, std::equal_to<>,
                         BlockAllocator<std::pair<const std::int64_t, std::shared_ptr<const Operation>>>>;
  Operations operations_{Operations::allocator_type(std::make_shared<BlockPool>())};
};

}  // namespace hvd
