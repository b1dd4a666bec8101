#include "runtime/execute/pending_op.h"

#include <utility>

namespace hvd {

void PendingOp::finish(Result<void> result) {
  if (result.ok() && output) {
    completion->finish(*std::exchange(output, std::nullopt));
  } else {
    completion->finish(std::move(result));
  }
}

OpRef OpPool::get() {
  std::unique_ptr<PendingOp> op;
  {
    const std::lock_guard lock(mu_);
    if (!free_.empty()) {
      op = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (op == nullptr) {
    op = std::make_unique<PendingOp>();
  }
  op->completion = std::allocate_shared<Completion>(BlockAllocator<Completion>(completions_));
  return OpRef(op.release(), Return{this});
}

void OpPool::put(std::unique_ptr<PendingOp> op) {
  op->clear();
  const std::lock_guard lock(mu_);
  free_.push_back(std::move(op));
}

void PendingOp::clear() {
  // Reset everything, but keep the memory of these members.
  Submission fresh;
  const auto keep = [](auto& from, auto& to) {
    from.clear();
    to.swap(from);
  };
  keep(what.name, fresh.name);
  keep(what.shape, fresh.shape);
  keep(what.splits, fresh.splits);
  keep(what.numbers, fresh.numbers);
  what = std::move(fresh);
  completion.reset();
  output.reset();
  group.clear();
  ready.reset();
  asked_at = 0;
  position = -1;
}

}  // namespace hvd
