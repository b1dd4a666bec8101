// QuickPath runs small operations on the calling threads, without the engine and the coordinator. There is one for each
// process set: NodeQuickPath where its ranks are on one node, HostQuickPath where they are on several.
//
// It is used only while nothing else is pending on this rank, and only if all ranks use it for the same operation at
// about the same time. If that is not so, all ranks that came notice it, and their operations take the ordinary way,
// which finds and reports any error. Results are bitwise those of the ordinary way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/core/dtype.h"
#include "runtime/core/op_kind.h"

namespace hvd {

// QuickOp is an allreduce, broadcast or barrier whose arguments were checked.
struct QuickOp {
  OpKind kind = OpKind::kBarrier;
  Dtype dtype = Dtype::kUint8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root_index = 0;  // in the process set
  double prescale = 1.0;
  double postscale = 1.0;
  std::span<const std::int64_t> shape;
  std::string_view name;     // empty: an unnamed operation ...
  std::uint64_t noname = 0;  // ... with this number
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t size_bytes = 0;
};

// Thread: any.
class QuickPath {
 public:
  static constexpr std::size_t kMaxBytes = 128U << 10U;
  static constexpr std::size_t kMaxNameBytes = 256;

  virtual ~QuickPath() = default;
  [[nodiscard]] virtual bool takes(OpKind kind, std::size_t size_bytes) const = 0;
  // False: the operation takes the ordinary way; its memory is unchanged. After an error, which ends the job, it takes
  // that way too, and is refused; then its output may have changed.
  virtual Result<bool> try_run(const QuickOp& op) = 0;
  // Another node waits for this node's answer of the round, see HostRounds. An error ends the job.
  virtual Result<void> answer(std::uint64_t /*round*/) { return {}; }
  // A step of the process set has run the ordinary way. All ranks run the same ones; call it before its operations end.
  virtual void note_step() {}
  // The process set is removed, on all ranks at the same place of their order of operations.
  virtual void retire() {}

 protected:
  QuickPath() = default;
  QuickPath(const QuickPath&) = default;
  QuickPath& operator=(const QuickPath&) = default;
};

}  // namespace hvd
