// Engine negotiates, fuses and runs one rank's operations. It owns the mesh, the backend, and a thread for operations
// for which no thread waits. A user's thread that waits for its Completion runs the engine itself, which saves waking
// another thread. The engine has no fixed tick: it sleeps until there is work or a message.
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
  Tuning tuning;  // all ranks use rank 0's; of its sizes fusion_bytes is ignored in favour of the next member
  std::size_t fusion_threshold_bytes = 128U << 20U;  // 0: no fusion
  Duration cycle_time = std::chrono::milliseconds(1);
  StallOptions stall;
  TimelineOptions timeline;                         // used on rank 0
  bool fuses_groups = true;                         // tensors of a group may be fused with others
  AutotuneOptions autotune;                         // used on rank 0
  std::size_t cache_capacity = 1024;                // of each process set; rank 0's counts
  std::optional<int> thread_core;                   // the core on which the engine's own thread runs; none: any
  Duration set_timeout = std::chrono::seconds(60);  // how long the ranks of a new process set may take to meet
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

  // Caller is what the submitting thread does next. kWaitsNext: it calls wait(), and nothing happens before that.
  // kWaitsSoon: it does something else first, but probably calls wait() before a thread woken now could do much; if
  // not, a thread wakes up a few milliseconds later.
  enum class Caller { kGoesOn, kWaitsNext, kWaitsSoon };
  // Returns a new operation with its Completion; the caller fills in `what` before it submits the operation. It must
  // not outlive the engine. Thread: any.
  OpRef get_op();
  // Submits one operation, or several of one kind, operator and scales, which all ranks do together or not at all. It
  // takes all or refuses all: with kInvalid if a name is already pending on this rank, and with the job's error once
  // the job is over. Thread: any.
  Result<void> submit(std::span<OpRef> ops, Caller caller = Caller::kGoesOn);
  // Starts what was submitted with kWaitsNext, if the caller does not wait next after all. Thread: any.
  void rouse(Caller caller);
  // Runs a small operation at once, if that is possible. False: nothing was done, so the caller submits the operation.
  // `set` is the one with this number, and this rank is a member. Thread: any.
  bool try_quick(const SetPlace& set, int process_set, const QuickOp& op);
  // Waits until a Completion of this engine is done, or the deadline has passed. Thread: any.
  void wait(const Completion& completion, const std::optional<Deadline>& until = std::nullopt);

  // Leaves the job. Pending work completes with kCancelled here; other ranks get kLostPeer for what they still wait
  // for. Threads in wait() return. Thread: any, one at a time; the destructor does it too.
  void leave();

  [[nodiscard]] const RankMap& map() const;
  // Thread: any.
  [[nodiscard]] const Counters& counters() const;
  // True once an elastic job has a newer generation, which waits for this rank to leave. Thread: any.
  [[nodiscard]] bool has_changed() const;
  // True while ranks are on their way that will join the job. Thread: any.
  [[nodiscard]] bool is_growing() const;
  // Null on all ranks except rank 0.
  [[nodiscard]] Timeline* timeline();
  // The process sets as this rank knows them now. Thread: any.
  [[nodiscard]] const SetTable& sets() const;
  // The buffers that kBufferAdd has made. Thread: any.
  [[nodiscard]] const BufferTable& buffers() const;
  // The cores that the ranks of this node may use together, if all ranks of the job are on it and share memory;
  // otherwise 0. Thread: any.
  [[nodiscard]] int node_cores() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
