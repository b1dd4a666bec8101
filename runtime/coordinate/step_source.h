// StepSource brings this rank the steps that all ranks run in the same order. It asks the coordinator for what the
// program has submitted, and takes in what the coordinator has decided. On rank 0 it takes in what the others ask for,
// decides, and tells them.
//
// It does not run steps and does not end the job: what it cannot accept is returned as an error, which ends the job.
// Thread: engine only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/coordinate/answer_calls.h"
#include "runtime/coordinate/autotune_log.h"
#include "runtime/coordinate/control_channel.h"
#include "runtime/coordinate/coordinator.h"
#include "runtime/coordinate/operation_trace.h"
#include "runtime/coordinate/pending_ops.h"
#include "runtime/coordinate/process_sets.h"
#include "runtime/coordinate/stall_timer.h"
#include "runtime/coordinate/step_ring.h"
#include "runtime/observe/counters.h"

namespace hvd {

class StepSource {
 public:
  struct Settings {
    Coordinator::Options decisions;  // used on rank 0, as are the next two
    StallOptions stall;
    std::string autotune_log;  // a file; empty: none
  };
  // Parts is what it works on, all of which outlives it.
  struct Parts {
    const RankMap& map;
    Mesh* mesh = nullptr;  // null in a job of one rank
    EventLoop& loop;
    SubmitQueue& queue;
    PendingOps& pending;
    ProcessSets& sets;
    OperationTrace& trace;
    Counters& counters;
    Log& log;
  };
  // `on_stall` is called with the error if ranks never ask for a tensor and the job must end.
  static Result<std::unique_ptr<StepSource>> create(const Settings& settings, const Parts& parts,
                                                    ControlChannel::Handlers handlers,
                                                    std::function<void(const Error&)> on_stall);

  // Asks for what was submitted. Known tensors are asked for by bits, which are sent first: a join or a change that is
  // asked for later must come later.
  void ask_for_submissions();
  // A frame of this rank's has arrived that is about steps. The error says what is wrong with it.
  Result<void> take(int rank, const Frame& frame);
  // A thread of this rank waits for the answers of a round: the coordinator passes the call on to the set's leaders.
  Result<void> call_for(const AnswerCall& call) { return call_for(parts_.map.rank, call); }
  // On the coordinator: decides what is next. Without effect elsewhere.
  void decide();
  // The same for sets of which this rank is not a member, while it runs a step.
  void decide_for_others();
  // This rank leaves: the coordinator ends the order, others ask it to.
  void leave();
  // The job is over: drops the steps that are not run, and asks for nothing more.
  void close();

  [[nodiscard]] StepRing& steps() { return steps_; }
  [[nodiscard]] ControlChannel& channel() { return *channel_; }
  void note_running();
  // Call before the loop may sleep. False: something has arrived.
  [[nodiscard]] bool sleep();
  void stay_awake();

 private:
  explicit StepSource(const Parts& parts) : parts_(parts), answer_calls_(parts.map) {}
  Result<void> open_channel(ControlChannel::Handlers handlers);
  void open_coordinator(const Settings& settings, std::function<void(const Error&)> on_stall);
  [[nodiscard]] bool is_coordinator() const { return parts_.map.rank == 0; }

  void send_bits();
  void send_frames();
  Result<void> take_from_rank(int rank, const Frame& frame);
  Result<void> take_from_coordinator(const Frame& frame);
  Result<void> call_for(int rank, const AnswerCall& call);
  Result<void> answer(const AnswerCall& call);
  Result<void> ask(int rank, std::vector<Request> requests);
  Result<void> take_hits(const KnownHits& hits);
  Result<void> remember(int process_set, std::span<const Remembered> news);
  void add_step(Response response);
  void announce(std::span<Coordinator::Decision> decisions);
  void announce_end(int by_rank);

  const Parts parts_;
  std::unique_ptr<ControlChannel> channel_;
  std::unique_ptr<Coordinator> coordinator_;  // on rank 0
  AnswerCalls answer_calls_;                  // on rank 0
  std::optional<StallTimer> stall_timer_;     // on rank 0, unless it is off
  std::optional<AutotuneLog> autotune_log_;   // on rank 0, if it searches
  StepRing steps_;
  bool is_end_announced_ = false;  // coordinator: nothing is decided after it
  bool is_closed_ = false;
  // scratch values, for one use at a time, kept for their memory
  std::vector<OpRef> taken_;
  std::vector<PendingOp*> asked_;
  std::string frames_;
  KnownBits bits_in_;
  KnownHits hits_in_;
};

}  // namespace hvd
