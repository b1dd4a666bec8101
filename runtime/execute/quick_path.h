// QuickPath runs small operations of the ranks of one node on the calling threads, without the engine. Each rank writes
// its input to shared memory, reads the inputs of the others, and computes the result itself (link/shm_rounds.h). For
// larger operations each rank computes its share, and writes that in a second round.
//
// It is used only while nothing else is pending on this rank, and only if all ranks use it for the same operation at
// about the same time. If that is not so, all ranks that came notice it, and their operations take the ordinary way,
// which finds and reports any error. So nothing fails here. Results are bitwise those of the ordinary way.
// Thread: any (mutex mu_).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/algo/schedule.h"
#include "runtime/core/dtype.h"
#include "runtime/core/op_kind.h"
#include "runtime/core/tuning.h"
#include "runtime/link/shm_rounds.h"
#include "runtime/link/shm_segment.h"

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

class QuickPath {
 public:
  // The limits of one rank's slot in the shared memory.
  static constexpr std::size_t kMaxBytes = 128U << 10U;
  static constexpr std::size_t kMaxNameBytes = 256;

  // For the ranks of `shm`, which must be all ranks of the process set.
  explicit QuickPath(std::shared_ptr<ShmSegment> shm, const Tuning& tuning = {});
  QuickPath(const QuickPath&) = delete;
  QuickPath& operator=(const QuickPath&) = delete;

  [[nodiscard]] bool takes(OpKind kind, std::size_t size_bytes) const {
    return size_bytes <= (kind == OpKind::kAllreduce ? bytes_ : whole_bytes_);
  }
  // False: the operation takes the ordinary way; its memory is unchanged.
  bool try_run(const QuickOp& op);

 private:
  enum class Round : std::uint8_t { kInputs, kShares };

  bool run_whole(const QuickOp& op);
  bool run_in_shares(const QuickOp& op);
  [[nodiscard]] bool meet(const QuickOp& op, Round round, std::uint8_t* box);
  [[nodiscard]] bool do_all_agree(std::size_t head_bytes) const;
  void take_result(const QuickOp& op, std::size_t at);
  void reduce_share(const QuickOp& op, std::size_t at, std::uint8_t* result);
  void reduce_operands(const QuickOp& op, std::uint8_t* result, std::size_t size_bytes) const;
  void take_shares(const QuickOp& op, std::size_t at) const;
  [[nodiscard]] Range share_of(const QuickOp& op, int rank) const;

  // constant after construction
  const std::shared_ptr<ShmSegment> shm_;
  // An allreduce up to this size goes this way ...
  const std::size_t bytes_;
  // ... in one round up to this size, which is also the limit for other kinds. Above it, a second round costs less than
  // reading and computing everything on each rank.
  const std::size_t whole_bytes_;
  // guarded by mu_
  std::mutex mu_;
  ShmRounds rounds_;
  std::vector<const std::uint8_t*> operands_;  // of the running operation, by local rank
  std::optional<int> spins_;
};

}  // namespace hvd
