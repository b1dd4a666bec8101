// NodeQuickPath is the quick path of ranks that are all on one node. Each rank writes its input to shared memory, reads
// the inputs of the others, and computes the result itself (link/shm_rounds.h). For larger operations each rank
// computes its share, and writes that in a second round. Nothing fails here. Thread: any (mutex mu_).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/algo/schedule.h"
#include "runtime/core/tuning.h"
#include "runtime/execute/quick_path.h"
#include "runtime/link/shm_rounds.h"
#include "runtime/link/shm_segment.h"

namespace hvd {

class NodeQuickPath final : public QuickPath {
 public:
  // For the ranks of `shm`, which must be all ranks of the process set.
  explicit NodeQuickPath(std::shared_ptr<ShmSegment> shm, const Tuning& tuning = {});
  NodeQuickPath(const NodeQuickPath&) = delete;
  NodeQuickPath& operator=(const NodeQuickPath&) = delete;

  [[nodiscard]] bool takes(OpKind kind, std::size_t size_bytes) const override {
    return size_bytes <= (kind == OpKind::kAllreduce ? bytes_ : whole_bytes_);
  }
  Result<bool> try_run(const QuickOp& op) override;

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
