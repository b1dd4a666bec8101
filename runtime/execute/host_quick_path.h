// HostQuickPath is the quick path of a process set whose ranks are on several nodes. The ranks of a node meet in a
// round of their shared memory (link/shm_rounds.h), their leader reduces their data and meets the other leaders
// (link/host_rounds.h), and a second round in shared memory gives its node the result. A node of one rank has no shared
// rounds.
//
// Once the first round of a node is full, its ranks wait for what their leader says, so that all do what the leaders
// have agreed on. None gives up before the job is over, or the process set is removed; then their operations are
// refused anyway. If the first round is void, the leader declines for its node, or, if it has not come itself, its
// engine will when it is asked.
//
// Which operations try is decided by their number (quick_pace.h): how many the ranks of the set have done before, this
// way or in steps of the ordinary way. All do the same steps, so all agree on it as long as each starts one operation
// after the other; where they do not, only time is lost. The order of a sum is that of LeaderCollectives in pairs, and
// only sizes that go in pairs there go this way. Thread: any (mutex mu_).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/core/rank_map.h"
#include "runtime/core/tuning.h"
#include "runtime/execute/quick_pace.h"
#include "runtime/execute/quick_path.h"
#include "runtime/link/host_rounds.h"
#include "runtime/link/shm_rounds.h"
#include "runtime/link/shm_segment.h"

namespace hvd {

// QuickCalls is what a quick path between hosts needs from its rank's engine. Thread: any.
class QuickCalls {
 public:
  virtual ~QuickCalls() = default;
  // True once the job is over on this rank.
  [[nodiscard]] virtual bool is_over() const = 0;
  // Makes each leader answer this round of the process set, see HostRounds; it waits with this operation.
  virtual void ask(int process_set, std::uint64_t round, const QuickOp& op) = 0;
  // The thread is about to sleep.
  virtual void note_sleep() = 0;

 protected:
  QuickCalls() = default;
  QuickCalls(const QuickCalls&) = default;
  QuickCalls& operator=(const QuickCalls&) = default;
};

class HostQuickPath final : public QuickPath {
 public:
  // A place is where the ranks of a process set meet.
  struct Place {
    int process_set = 0;
    const RankMap& map;
    std::shared_ptr<ShmSegment> shm;     // null if this rank is alone on its node
    std::shared_ptr<HostRounds> rounds;  // null unless this rank leads its node
  };
  // `calls` outlives it.
  HostQuickPath(Place place, const Tuning& tuning, QuickCalls& calls);
  HostQuickPath(const HostQuickPath&) = delete;
  HostQuickPath& operator=(const HostQuickPath&) = delete;

  [[nodiscard]] bool takes(OpKind kind, std::size_t size_bytes) const override;
  Result<bool> try_run(const QuickOp& op) override;
  Result<void> answer(std::uint64_t round) override;
  void note_step() override { number_.fetch_add(1); }
  void retire() override;

 private:
  // A node's own data, before it goes to other nodes.
  struct Own {
    const std::uint8_t* input = nullptr;  // null: a broadcast's root is on another node
    std::uint8_t* result = nullptr;       // a place for the result, written once that is certain
  };
  // Waits are those of one operation.
  class Waits final : public RoundWaits {
   public:
    Waits(int process_set, const QuickOp& op, QuickCalls& calls) : process_set_(process_set), op_(op), calls_(calls) {}
    [[nodiscard]] bool is_over() const override { return calls_.is_over(); }
    void ask(std::uint64_t round) override { calls_.ask(process_set_, round, op_); }
    void note_sleep() override { calls_.note_sleep(); }

   private:
    const int process_set_;
    const QuickOp& op_;
    QuickCalls& calls_;
  };

  Result<bool> run(const QuickOp& op, std::uint64_t number);
  Result<bool> run_with_node(const QuickOp& op, std::uint64_t number);
  Result<bool> run_between_hosts(const QuickOp& op, const Own& own);
  Result<bool> decline(std::uint64_t number);
  [[nodiscard]] bool meet(const QuickOp& op);
  [[nodiscard]] bool hear_leader();
  [[nodiscard]] Own own_of_node(const QuickOp& op, std::size_t at);

  // constant after construction
  const int process_set_;
  const std::shared_ptr<ShmSegment> shm_;
  const std::shared_ptr<HostRounds> rounds_;
  const int rank_;
  const int ranks_;
  const int first_rank_;     // of this node
  const std::size_t bytes_;  // the most that an operation may have
  QuickCalls& calls_;
  // any thread
  std::atomic<bool> is_retired_ = false;
  std::atomic<std::uint64_t> number_ = 0;  // of the next operation
  // guarded by mu_
  std::mutex mu_;
  std::optional<ShmRounds> local_;
  std::optional<int> spins_;
  std::vector<const std::uint8_t*> operands_;  // by local rank
  std::unique_ptr<std::uint8_t[]> node_data_;  // this node's data: scaled, or reduced
  std::unique_ptr<std::uint8_t[]> partial_;    // a partial result of several nodes
  QuickPace pace_;
};

}  // namespace hvd
