// Engine::Impl is the engine's state and its steps. It is run by the thread that holds its TurnLock: its
// own thread, or a user's thread that waits. It sleeps until there is a submission, a control message, a notice from
// the store, or the end. An event handler only changes state; advance() then acts on it. During a collective the
// Backend calls check(), which takes in messages the same way, but neither sleeps nor acts.
//
// How a job ends
// - In order: a leaving rank sends Leave, and the coordinator answers with Shutdown after all that it has decided.
//   Every rank, the leaving one too, runs what comes before it, so that no collective is left half done. What is still
//   pending then fails with an error that names the leaver. Ranks send Goodbye when they have finished, the coordinator
//   last. So the end of file that follows is not mistaken for a death, and no rank closes a socket that still carries
//   messages.
// - By failure: the first certain cause (a notice, an abort, a malformed message, no memory) ends the job at once and
//   is passed on. A broken connection is only a suspicion. The real cause follows within a moment from a process that
//   knows it, such as the agent, which sees the signal that killed the rank. So the engine waits for that before it
//   reports the connection.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/base/interrupt.h"
#include "runtime/base/process_mark.h"
#include "runtime/controller/response_cache.h"
#include "runtime/coordinate/autotune_log.h"
#include "runtime/coordinate/control_channel.h"
#include "runtime/coordinate/coordinator.h"
#include "runtime/coordinate/set_table.h"
#include "runtime/coordinate/step_ring.h"
#include "runtime/core/arena_map.h"
#include "runtime/engine/buffer_table.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/turn_lock.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/submit_queue.h"
#include "runtime/execute_device/device_plane.h"
#include "runtime/io/event_loop.h"
#include "runtime/observe/counters.h"
#include "runtime/observe/stall_watch.h"
#include "runtime/observe/timeline.h"

namespace hvd {

class Engine::Impl final : public Interrupt {
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

  // Starts the thread.
  static Result<std::unique_ptr<Impl>> create(Parts parts);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Makes the backend that the options ask for; see BackendMaker.
  static Result<std::unique_ptr<Backend>> make_backend(const EngineOptions& options, int process_set,
                                                       const std::vector<int>& ranks, Mesh& mesh);

  // Thread: any. See Engine.
  OpRef get_op() { return queue_->get_op(); }
  Result<void> submit(std::span<OpRef> ops, Caller caller);
  void rouse(Caller caller);
  void wait(const Completion& completion, const std::optional<Deadline>& until);
  bool try_quick(const SetPlace& set, int process_set, const QuickOp& op);
  // Leaves the job and waits for the engine's thread. Thread: any, one at a time, but not one that is in wait().
  void leave();
  [[nodiscard]] const RankMap& map() const { return parts_.map; }
  [[nodiscard]] const SetTable& sets() const { return set_table_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] Timeline* timeline() { return timeline_.get(); }
  [[nodiscard]] const BufferTable& buffers() const { return buffer_table_; }
  [[nodiscard]] int node_cores() const {
    const bool is_of_job = parts_.mesh != nullptr && parts_.map.node_count == 1 && parts_.mesh->shm() != nullptr;
    return is_of_job ? parts_.mesh->shm()->core_count() : 0;
  }
  [[nodiscard]] bool has_changed() const { return parts_.store != nullptr && parts_.store->has_changed(); }
  [[nodiscard]] bool is_growing() const { return parts_.store != nullptr && parts_.store->is_growing(); }
  // True if this process is a fork of the one that has the engine's thread.
  [[nodiscard]] bool is_forked() const;

  // Interrupt's functions; engine only.
  Result<void> check() override;
  // Thread: any.
  void note_sleep() override { counters_.note_sleep(); }

 private:
  // ProcessSet is what this rank needs to take part in the operations of a process set. For the set of all ranks, mesh
  // and backend are those of parts_.
  struct ProcessSet {
    std::unique_ptr<Mesh> mesh{};  // null in a set of one rank
    std::unique_ptr<Backend> backend{};
    std::optional<Executor> executor{};       // none: this rank is not a member
    std::shared_ptr<SetCounters> counters{};  // null: not a member
    std::optional<ResponseCache> cache{};     // none: not a member
    // By cache position: what this rank has asked for by a bit, and what is not answered yet.
    std::vector<std::vector<PendingOp*>> asked_by_bit{};
    KnownBits bits{};  // to be sent
  };

  explicit Impl(Parts parts);
  Result<void> prepare();
  Result<void> open_channel();
  void start_thread();

  // Running the engine (engine_turning.cpp).
  void run();
  void wait_for_turn();
  void drive(const Completion& completion, const std::optional<Deadline>& until);
  bool take_in();
  Result<void> turn_once();
  void stay_awake();
  [[nodiscard]] bool may_sleep();
  [[nodiscard]] bool is_idle() const;
  void let_go();
  // Thread: any.
  void rouse();
  void wake();

  // Incoming events, from the loop's handlers: these only change state (engine_news.cpp).
  void on_wake();
  void on_submissions();
  void on_notice();
  void on_frame(int rank, const Frame& frame);
  Result<void> take_frame(int rank, const Frame& frame);
  Result<void> take_frame_from_rank(int rank, const Frame& frame);
  Result<void> take_frame_from_coordinator(const Frame& frame);
  Result<void> ask(int rank, std::vector<Request> requests);
  void send_frames();
  void on_link_end(int rank, const Error& why);
  void on_stop();

  // Acting on the state (engine_steps.cpp).
  void advance();
  void decide();
  void announce(std::span<Coordinator::Decision> decisions);
  void announce_shutdown(int rank);
  void run_step(const Step& step);
  void run_response(const Response& response, std::uint64_t known_at);
  void run_ops(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops, std::uint64_t known_at);
  [[nodiscard]] std::vector<std::string> names_of(const Response& response) const;
  [[nodiscard]] PendingOp* find_op(const Response& response, const std::string& name);
  [[nodiscard]] bool has_joined() const;
  Result<std::vector<PendingOp*>> ops_of(const Response& response, std::deque<PendingOp>& stand_ins);
  void finish_ops(std::span<PendingOp* const> ops, const Result<void>& result);
  void fail_step(const Error& error, const Response& response, std::span<PendingOp* const> ops);
  // Tensors that all ranks know (engine_known.cpp).
  bool ask_by_bit(ProcessSet& set, std::span<PendingOp* const> ops);
  void send_bits();
  Result<void> take_hits(const KnownHits& hits);
  void add_step(ProcessSet& set, std::int32_t number, std::span<const int> positions);
  void note_answered(const Response& response);
  [[nodiscard]] std::vector<PendingOp*> ops_named(std::int32_t process_set, const std::string& name);
  Result<void> remember(std::int32_t process_set, std::span<const Remembered> news);
  // Operations on devices (engine_devices.cpp).
  void open_devices();
  void launch(ProcessSet& set, const Response& response, std::span<PendingOp* const> ops, std::uint64_t known_at);
  void add_batch(std::span<PendingOp* const> ops, DeviceBatch batch);
  void end_batch(DeviceBatch batch, const Result<void>& result);
  [[nodiscard]] DeviceExecutor::Host host_of(ProcessSet& set);
  // Changes of process sets and buffers (engine_changes.cpp).
  Result<void> change(const Response& response, PendingOp& op);
  Result<void> add_buffer(PendingOp& op);
  void remove_buffer(std::int32_t number);
  Result<void> add_set(int number, const std::vector<int>& ranks);
  [[nodiscard]] std::shared_ptr<QuickPath> quick_path_of(const Mesh* mesh) const;

  // Observation: counters, timeline, stalls (engine_observe.cpp).
  static void count(SetCounters& counters, std::span<PendingOp* const> ops, std::uint64_t known_at,
                    std::uint64_t began);
  void open_timeline();
  void open_autotune_log();
  void tell_tuning();
  [[nodiscard]] bool is_traced() const { return timeline_ != nullptr && timeline_->is_on(); }
  void trace_request(int rank, const Request& request);
  void trace_ready(const Response& response);
  void trace_hit(const Request& request);
  void trace_pause(std::span<PendingOp* const> ops);
  void trace_end(std::span<PendingOp* const> ops);
  void trace_quick(int process_set, const QuickOp& op, std::uint64_t began);
  void arm_stall_timer();
  void disarm_stall_timer();
  void look_for_stalls();

  // The end of the job (engine_end.cpp).
  void shut_down(int by_rank);
  // `by` is the rank whose end or fault it is; -1: not known, or this rank's own.
  void suspect(const Error& why, int by = -1);
  void end_job(const Error& cause, int by = -1);
  void over(const Error& cause, int by);
  // Reports that this rank only follows another failure, to the launcher, which looks for the first cause.
  void tell_over();
  void fail_pending();
  void say_goodbye();
  void unwatch_notice();
  [[nodiscard]] bool is_finished() const;
  [[nodiscard]] bool is_coordinator() const { return parts_.map.rank == 0; }

  // constant after construction
  Parts parts_;
  const ProcessMark process_;
  const SteadyClock clock_;
  std::unique_ptr<SubmitQueue> queue_;
  std::unique_ptr<TurnLock> turn_lock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Timeline> timeline_;  // on rank 0
  std::unique_ptr<DevicePlane> devices_;
  // any thread
  std::atomic<bool> stop_ = false;
  SetTable set_table_;
  Counters counters_;
  BufferTable buffer_table_;
  // engine only: used by the thread that holds the turn lock
  std::unique_ptr<ControlChannel> channel_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  std::optional<AutotuneLog> autotune_log_;   // on rank 0, if there is one
  std::unordered_map<int, ProcessSet> sets_;  // by number
  std::optional<ArenaMap> arena_map_;         // of the memory that this node's ranks share
  std::int32_t last_buffer_ = 0;
  int spins_ = 0;           // how often a driver polls before it yields the core
  int spins_per_turn_ = 1;  // how often it asks the kernel for events meanwhile
  using PendingOps =
      std::unordered_map<OpKey, OpRef, OpKeyHash, std::equal_to<>, BlockAllocator<std::pair<const OpKey, OpRef>>>;
  PendingOps pending_{PendingOps::allocator_type(std::make_shared<BlockPool>())};
  StepRing steps_;
  Step running_;
  // scratch values, for one use at a time, kept for their memory
  std::vector<OpRef> taken_;
  std::vector<PendingOp*> asked_;
  std::string frames_;
  KnownBits bits_in_;
  KnownHits hits_in_;
  std::optional<StallWatch> stall_watch_;  // on rank 0, unless it is off
  TimerId stall_timer_ = 0;                // only while the engine sleeps
  TimePoint next_look_{};
  unsigned decisions_ = 0;
  WatchId notice_watch_ = 0;
  TimerId suspicion_timer_ = 0;
  std::optional<Error> suspicion_;
  int suspect_ = -1;                    // the rank under suspicion, if it is known
  std::optional<Error> over_;           // why the job is over for this rank
  int over_by_ = -1;                    // the rank that is the cause, if it is known
  std::vector<bool> has_said_goodbye_;  // [size]
  bool is_shutdown_announced_ = false;  // coordinator: nothing is decided after it
  bool is_leaving_ = false;             // the owner is destroying the engine
  bool is_leave_overdue_ = false;
  bool is_orderly_ = false;  // over_ is an orderly shutdown
  bool is_told_ = false;     // the agent said that the job is over, as each rank's agent does
  bool has_said_own_goodbye_ = false;
  std::thread thread_;
};

}  // namespace hvd
