// ProcessSets holds what this rank needs to take part in the operations of each process set. All ranks add and remove
// sets at the same place of the order that the coordinator decides, so that they agree on which exist.
// Thread: engine only, except table().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"
#include "runtime/controller/message.h"
#include "runtime/coordinate/bit_requests.h"
#include "runtime/coordinate/set_table.h"
#include "runtime/core/tuning.h"
#include "runtime/execute/executor.h"
#include "runtime/link/mesh.h"
#include "runtime/observe/counters.h"
#include "runtime/observe/timeline.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class QuickCalls;

struct ProcessSet {
  std::unique_ptr<Mesh> mesh{};  // null in the set of all ranks, whose mesh is the job's, and in a set of one rank
  std::unique_ptr<Backend> backend{};       // null in the set of all ranks
  std::optional<Executor> executor{};       // none: this rank is not a member, and has none of what follows
  std::shared_ptr<SetCounters> counters{};  // shared with the threads that read it
  std::optional<BitRequests> bits{};
  std::shared_ptr<QuickPath> quick{};  // null: there is none. Shared with the threads that use it
};

class ProcessSets {
 public:
  struct Settings {
    const RankMap& map;
    MeshOptions mesh_options;
    Tuning tuning;
    std::shared_ptr<BackendMaker> maker;  // null: CpuBackend. Shared with the options of the job
    Duration time_to_meet{};              // how long the ranks of a new set may take
    Mesh* mesh = nullptr;                 // of all ranks; null in a job of one
    Backend& backend;                     // of all ranks
    Store* store = nullptr;
    Log& log;
    QuickCalls* calls = nullptr;  // null: there are no quick paths between hosts
  };
  // Makes the set of all ranks.
  ProcessSets(const Settings& settings, SetTable& table, Counters& counters);

  // Null: there is no such set, or this rank does not know it yet.
  [[nodiscard]] ProcessSet* find(int number) {
    const auto found = sets_.find(number);
    return found == sets_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::size_t size() const { return sets_.size(); }
  [[nodiscard]] Backend& backend_of(const ProcessSet& set) {
    return set.backend != nullptr ? *set.backend : settings_.backend;
  }
  // Calls `take` for each set of which this rank is a member.
  template <typename Take>
  void for_each_own(Take take) {
    for (auto& [number, set] : sets_) {
      if (set.executor) {
        take(set);
      }
    }
  }

  // Blocks until all ranks of the set have connected, or one is known to be lost. Nothing else can be done meanwhile,
  // since the next step in the order may be of this set.
  Result<ProcessSet*> add(int number, const std::vector<int>& ranks, Timeline* timeline, Interrupt& interrupt);
  void remove(int number);
  // Answers the round for this rank's node, if it leads one and its rank is not at work on it. Nothing happens for a
  // set that is not here yet; the caller calls again.
  Result<void> answer(const AnswerCall& call) const;

 private:
  [[nodiscard]] std::shared_ptr<QuickPath> quick_path_of(int number, const Mesh* mesh) const;

  const Settings settings_;
  SetTable& table_;
  Counters& counters_;
  std::unordered_map<int, ProcessSet> sets_;  // by number
};

// Makes the backend of a process set, as the job's settings ask for. `maker` is null for the CpuBackend.
Result<std::unique_ptr<Backend>> make_backend(BackendMaker* maker, const Tuning& tuning, int process_set,
                                              const std::vector<int>& ranks, Mesh& mesh);
// Counts a step that was run, and its operations. Times are in ticks: when all ranks were known to be ready, and when
// the step began.
void count_step(SetCounters& counters, std::span<PendingOp* const> ops, std::uint64_t known_at, std::uint64_t began);

}  // namespace hvd
