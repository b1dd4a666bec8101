// PendingOp is an operation on its way through the engine, from the C interface until its Completion is finished.
// OpPool keeps finished operations for reuse, since a training program starts the same ones again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/block_pool.h"
#include "runtime/core/completion.h"
#include "runtime/core/dtype.h"
#include "runtime/core/op_kind.h"

namespace hvd {

class Event;

// Submission is one operation as the C interface received it. Its pointers stay valid until its Completion is done.
struct Submission {
  OpKind kind = OpKind::kBarrier;
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root_rank = 0;  // of the job
  std::vector<std::int64_t> shape;
  const void* input = nullptr;
  void* output = nullptr;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::int32_t> splits{};  // alltoall: rows for each rank, [size]
  int process_set = 0;
  // kSetAdd: the ranks, ascending; kSetRemove, kBufferRemove: the number of the set or buffer
  std::vector<std::int32_t> numbers{};
  bool by_members = false;      // see Request
  std::int64_t shared_at = -1;  // see Request
  std::int32_t priority = 0;    // see Request
  int device = -1;              // the device whose memory input and output are; -1: the host's
  void* stream = nullptr;       // of the device; input and output are ready after its work
};

// ReadyMark is the point on the caller's stream at which the memory of an operation is ready for use.
struct ReadyMark {
  std::shared_ptr<Event> event;  // shared with the other operations of one call
  void* stream = nullptr;
  std::uint64_t serial = 0;  // counts marks in the order in which they were recorded
};

// PendingOp is an operation from its submission until its Completion is finished.
struct PendingOp {
  Submission what;
  // shared by the caller's handle and the engine, in whichever order they release it
  std::shared_ptr<Completion> completion;
  std::vector<PendingOp*> group;      // in a group's first operation: the others, which are submitted with it
  std::optional<OwnedOutput> output;  // allgather: filled when it ran
  std::uint64_t asked_at = 0;         // ticks; 0: a stand-in
  std::optional<ReadyMark> ready{};   // for an operation on a device
  int position = -1;                  // engine only: the position by whose bit it was asked for, until it is answered

  void finish(Result<void> result);
  // Resets everything except the Completion.
  void clear();
};

// OpKey identifies an operation by its name within a process set. `name` refers to memory of another object; for an
// OpRef in a table, it is the operation's own name.
struct OpKey {
  int process_set = 0;
  std::string_view name;

  bool operator==(const OpKey&) const = default;
};
struct OpKeyHash {
  std::size_t operator()(const OpKey& key) const {
    return std::hash<std::string_view>()(key.name) ^ (static_cast<std::size_t>(key.process_set) << 20U);
  }
};

// OpPool keeps operations, with the memory of their names and shapes, for the next ones. Thread: any (mutex mu_).
class OpPool {
 public:
  struct Return {
    OpPool* pool = nullptr;
    void operator()(PendingOp* op) const { pool->put(std::unique_ptr<PendingOp>(op)); }
  };
  OpPool() = default;
  OpPool(const OpPool&) = delete;
  OpPool& operator=(const OpPool&) = delete;

  // Returns an operation with a new Completion and nothing else.
  std::unique_ptr<PendingOp, Return> get();

 private:
  void put(std::unique_ptr<PendingOp> op);

  // constant after construction
  const std::shared_ptr<BlockPool> completions_ = std::make_shared<BlockPool>();
  // guarded by mu_
  std::mutex mu_;
  std::vector<std::unique_ptr<PendingOp>> free_;
};
using OpRef = std::unique_ptr<PendingOp, OpPool::Return>;

}  // namespace hvd
