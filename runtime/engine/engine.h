// Engine: negotiates, fuses and runs one rank's operations. It owns mesh and backend, and a thread for what nobody
// waits for; a user's thread that waits for its Completion turns the engine itself. It sleeps until there is work or
// news; it has no tick.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/controller/autotuner.h"
#include "runtime/core/rank_map.h"
#include "runtime/core/tuning.h"
#include "runtime/execute/pending_op.h"
#include "runtime/execute_device/device_setup.h"
#include "runtime/link/mesh.h"
#include "runtime/observe/counters.h"
#include "runtime/observe/stall_watch.h"
#include "runtime/observe/timeline.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class BackendMaker;
class BufferTable;
class SetTable;
struct QuickOp;
struct SetPlace;

struct EngineOptions {
  MeshOptions mesh;
  Tuning tuning;  // rank 0's is that of all; its fusion_bytes is not asked, but the following
  std::size_t fusion_threshold_bytes = 128U << 20U;  // 0: no fusion
  Duration cycle_time = std::chrono::milliseconds(1);
  StallOptions stall;
  TimelineOptions timeline;                         // of rank 0
  bool fuses_groups = true;                         // tensors of a group travel with others too
  AutotuneOptions autotune;                         // of rank 0
  std::size_t cache_capacity = 1024;                // of each process set; of rank 0
  std::optional<int> thread_core;                   // on which the engine's own thread runs; none: on any
  Duration set_timeout = std::chrono::seconds(60);  // for the ranks of a new process set to meet
  std::shared_ptr<BackendMaker> backends;           // null: CpuBackend. Shared, since options are copied
  DeviceOptions devices;
};

class Engine {
 public:
  // Joins the job and starts the thread. The engine owns the store.
  static Result<std::unique_ptr<Engine>> start(RankMap map, std::unique_ptr<Store> store, const EngineOptions& options,
                                               std::unique_ptr<Log> log, Deadline deadline);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // What who submits does next. kWaitsNext: wait(), and nothing happens before that. kWaitsSoon: something else, but
  // likely wait() before any thread that is woken now could do much; if not, one wakes up a few milliseconds later.
  enum class Caller { kGoesOn, kWaitsNext, kWaitsSoon };
  // A new operation with its Completion, of which `what` is to be filled in before it is submitted. Must not outlive
  // the engine. Thread: any.
  OpRef get_op();
  // One, or several of one kind, operator and scales, which all ranks do together or not at all. Takes all, or refuses
  // all: (kInvalid) a name that is pending on this rank already, and (with the job's cause) everything once the job is
  // over. Thread: any.
  Result<void> submit(std::span<OpRef> ops, Caller caller = Caller::kGoesOn);
  // For what was submitted with kWaitsNext, by one who does something else all the same. Thread: any.
  void rouse(Caller caller);
  // Does a small operation at once, where that can be; false, and nothing was done, where it cannot: submit it then.
  // Thread: any. `set`: of this number, and this rank is a member.
  bool try_quick(const SetPlace& set, int process_set, const QuickOp& op);
  // Until a Completion of this engine is done, or the deadline has passed. Thread: any.
  void wait(const Completion& completion, const std::optional<Deadline>& until = std::nullopt);

  // Leaves the job: pending work here completes with kCancelled; other ranks get kLostPeer for what they still wait
  // for. Those who are in wait() return. Thread: any, one at a time; the destructor does it too.
  void leave();

  [[nodiscard]] const RankMap& map() const;
  // Thread: any.
  [[nodiscard]] const Counters& counters() const;
  // Null on ranks that have none, which are all but 0.
  [[nodiscard]] Timeline* timeline();
  // The process sets as this rank knows them now. Thread: any.
  [[nodiscard]] const SetTable& sets() const;
  // The memory that kBufferAdd has made. Thread: any.
  [[nodiscard]] const BufferTable& buffers() const;
  // The cores that the ranks of this node may use together, where all of the job are on it and share memory; else 0.
  // Thread: any.
  [[nodiscard]] int node_cores() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
