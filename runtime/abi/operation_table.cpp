#include "runtime/abi/operation_table.h"

#include <atomic>
#include <string>

namespace hvd {
namespace {

// Handles are never reused in a process, so that a handle of an earlier job cannot name an operation of a later one.
std::int64_t next_handle() {
  static std::atomic<std::int64_t> last = 0;
  return ++last;
}

}  // namespace

std::shared_ptr<Operation> OperationTable::make() {
  return std::allocate_shared<Operation>(BlockAllocator<Operation>(operation_blocks_));
}

std::shared_ptr<const Operation> OperationTable::make_done(const QuickOp& op) {
  auto operation = make();
  operation->completion = std::allocate_shared<Completion>(BlockAllocator<Completion>(completion_blocks_));
  operation->completion->finish(Result<void>());
  operation->output = op.output;
  operation->size_bytes = op.size_bytes;
  operation->set_shape(op.shape);
  return operation;
}

std::int64_t OperationTable::keep(std::shared_ptr<const Operation> operation) {
  const std::int64_t handle = next_handle();
  const std::lock_guard lock(mu_);
  operations_.emplace(handle, std::move(operation));
  return handle;
}

Result<std::shared_ptr<const Operation>> OperationTable::find(std::int64_t handle) {
  const std::lock_guard lock(mu_);
  const auto found = operations_.find(handle);
  if (found == operations_.end()) {
    return Error(Code::kNotFound, "there is no operation with handle " + std::to_string(handle) +
                                      "; it was released, or belongs to another job");
  }
  return found->second;
}

void OperationTable::forget(std::int64_t handle) {
  const std::lock_guard lock(mu_);
  operations_.erase(handle);
}

}  // namespace hvd
