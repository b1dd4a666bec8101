// RunningJob is what is known of a job while it runs: its phase, the states of its nodes and ranks, and its cause. The
// objects that decide what a job does next (job_state.h) share one, and each changes what it decides on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/unreached.h"
#include "launcher/placement/placement.h"
#include "launcher/process/exit_status.h"
#include "launcher/state/failure_order.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

enum class JobPhase : std::uint8_t { kOpening, kRunning, kStopping, kDone };

// Cause says why a job did not succeed.
struct Cause {
  enum class Kind : std::uint8_t {
    kOther,
    kLoss,        // a rank failed, or a host was lost, while the ranks ran: a new start may do better
    kUnreached,   // hosts could not be reached
    kInterrupted  // hvdrun got a signal
  };
  // Who, what, what to try: of kUnreached a line for each host; else the lines after the first explain it.
  std::vector<std::string> lines;
  int exit_code = 0;
  int rank = -1;       // the rank whose last lines belong to the report; -1: none
  std::string hint{};  // what the user can do about it while the job ends
  Kind kind = Kind::kOther;
  Unreached unreached{};
};

struct RankRecord {
  enum class State : std::uint8_t { kPending, kRunning, kEnded, kLost };
  State state = State::kPending;
  int pid = 0;
  bool has_joined = false;   // since its last start
  bool is_member = true;     // it trains with the others, as far as it has joined
  bool is_released = false;  // it was told to end, because its host is given back
  int restarts = 0;
  std::string last_loss{};    // why it was started again, until it joins: "rank 2 on b (pid 7) exited with code 1"
  std::string lost_for{};     // why the others do without it
  std::string failed_with{};  // the error of its last process, where that had committed nothing
  bool fails_again = false;   // its last two processes ended so, with the same error
  bool has_followed = false;  // it failed before it was stopped, because of the rank that is the cause
  ExitStatus status;
  ExitDetail detail{};
  bool is_server = false;   // it serves the others, and never ends by itself
  bool was_let_go = false;  // it was told to end because all that counted had ended well
};

enum class NodeState : std::uint8_t { kOpening, kReady, kDone, kLost };

struct RunningJob {
  RunningJob(const Placement& placement_of_job, const std::vector<int>& servers, Duration grace);

  [[nodiscard]] const NodePlan& plan(int node) const { return placement.nodes[static_cast<std::size_t>(node)]; }
  NodeState& node(int node) { return nodes[static_cast<std::size_t>(node)]; }
  [[nodiscard]] NodeState node(int node) const { return nodes[static_cast<std::size_t>(node)]; }
  RankRecord& rank(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const RankRecord& rank(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }

  // A node was added to the placement; its ranks train with nobody yet.
  void add(const NodePlan& plan);
  // The rank is done without, whatever it does from now on.
  void lose(int rank);
  // Notes whether the rank has failed as it did before, with nothing gained in between.
  void note_error(int rank);

  // It runs or is being started.
  [[nodiscard]] bool is_there(int rank) const;
  // The ranks of the node that are still there.
  [[nodiscard]] std::vector<int> ranks_there(const NodePlan& node) const;
  // It runs, and trains with the others.
  [[nodiscard]] bool can_train(int rank) const;
  // The job is over without this rank.
  [[nodiscard]] bool is_optional(int rank) const;
  // It is there and joins the running job, which has done without it until now.
  [[nodiscard]] bool is_newcomer(int rank) const;
  // There are ranks, and each is a newcomer.
  [[nodiscard]] bool are_newcomers(const std::vector<int>& of) const;
  // Each rank has failed twice with the same error, so that a new start would not help.
  [[nodiscard]] bool all_fail_again() const;
  // Says which rank it is, and how it failed or ended.
  [[nodiscard]] std::string describe(int rank) const;

  const Placement& placement;
  JobPhase phase = JobPhase::kOpening;
  std::vector<NodeState> nodes;
  std::vector<RankRecord> ranks;
  FailureOrder order;
  std::optional<Cause> cause;
  bool is_awaiting_end = false;  // waits for the end of the rank that is the cause
};

}  // namespace hvd::launch
