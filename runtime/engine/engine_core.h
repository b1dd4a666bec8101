// EngineCore is the engine of one rank without its threads: what the rank works on, the incoming events, and the next
// action. It is run by the thread that holds the turn lock (engine_turns.h). An event handler only changes state;
// advance() then acts on it. During a collective the Backend calls check(), which takes in messages the same way, but
// neither sleeps nor acts.
//
// Its work is done by objects with members of their own: StepSource agrees with the other ranks on the next step,
// StepRunner runs it, and JobEnding ends the job.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "runtime/base/interrupt.h"
#include "runtime/coordinate/operation_trace.h"
#include "runtime/coordinate/pending_ops.h"
#include "runtime/coordinate/process_sets.h"
#include "runtime/coordinate/set_table.h"
#include "runtime/coordinate/step_source.h"
#include "runtime/engine/device_work.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/job_ending.h"
#include "runtime/engine/quick_relay.h"
#include "runtime/engine/shared_buffers.h"
#include "runtime/engine/step_runner.h"
#include "runtime/execute/submit_queue.h"
#include "runtime/io/event_loop.h"
#include "runtime/observe/counters.h"

namespace hvd {

class EngineCore final : public Interrupt {
 public:
  // Parts is what an engine runs on; the engine owns it.
  struct Parts {
    RankMap map;
    EngineOptions options;
    std::unique_ptr<Store> store;  // null: no store can send notices
    std::unique_ptr<Log> log;
    std::unique_ptr<Mesh> mesh;        // null in a job of one rank
    std::unique_ptr<Backend> backend;  // of all ranks
  };
  // `wake` wakes the thread that runs the engine. Thread of the call: any.
  static Result<std::unique_ptr<EngineCore>> create(Parts parts, std::function<void()> wake);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Thread: any. See Engine.
  Result<void> submit(std::span<OpRef> ops);
  bool try_quick(const SetPlace& set, int process_set, const QuickOp& op);
  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] SubmitQueue& queue() { return *queue_; }
  [[nodiscard]] const SetTable& sets() const { return set_table_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] Timeline* timeline() { return trace_.timeline(); }
  [[nodiscard]] const BufferTable& buffers() const { return buffers_.table(); }
  void note_sleep() override;
  // The owner leaves the job; the engine sees it when it is woken.
  void leave() { is_leaving_.store(true); }

  // The functions below are for the thread that runs the engine.

  // Takes in what arrives without the kernel: submissions, and frames through shared memory. Returns true if there was
  // any.
  bool take_in();
  // Acts on what was taken in, until there is nothing more to do.
  void advance();
  Result<void> check() override;
  // Call before the loop may sleep, and when it is awake again. False: something has arrived.
  [[nodiscard]] bool sleep();
  void stay_awake();
  // True if nothing is asked for, and only a message or a submission can change that.
  [[nodiscard]] bool is_idle() const;
  // True if this rank has left, and the engine need not run any more.
  [[nodiscard]] bool is_finished() const { return ending_->is_finished(); }
  // The loop has failed.
  void fail_loop(const Error& cause) { ending_->fail_loop(cause); }
  // A handler has thrown, as where there is no memory: ends the job for it. False: the job was ending already, and the
  // engine cannot go on.
  [[nodiscard]] bool outlives(const std::exception& thrown);
  [[nodiscard]] EventLoop& loop() { return *loop_; }
  // True if a peer can be heard only through the loop.
  [[nodiscard]] bool needs_loop() const { return source_->channel().needs_loop(); }
  // After the last turn: finishes what all ranks have launched on devices, also after an orderly end.
  void close_devices();

 private:
  explicit EngineCore(Parts parts);
  Result<void> open(std::function<void()> wake);
  [[nodiscard]] StepSource::Settings source_settings() const;
  [[nodiscard]] DevicePlane::Settings device_settings() const;
  void on_wake();
  void end_for(const std::optional<Error>& failed, int by);
  void on_frame(int rank, const Frame& frame);
  Result<void> take_frame(int rank, const Frame& frame);

  // constant after construction
  Parts parts_;
  const SteadyClock clock_;
  Counters counters_;  // any thread
  std::unique_ptr<SubmitQueue> queue_;
  std::unique_ptr<EventLoop> loop_;
  // any thread
  std::atomic<bool> is_leaving_ = false;
  SetTable set_table_;
  SharedBuffers buffers_;
  OperationTrace trace_;
  QuickRelay quick_relay_{*this};
  // engine only
  ProcessSets sets_;
  std::unique_ptr<PendingOps> pending_;
  std::unique_ptr<StepSource> source_;
  std::unique_ptr<DeviceWork> devices_;
  std::unique_ptr<JobEnding> ending_;
  std::unique_ptr<StepRunner> runner_;
  Step running_;
};

}  // namespace hvd
