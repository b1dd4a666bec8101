// JobEnding carries out what EndOfJob decides: it passes the cause on, refuses operations, and fails what is pending.
// It keeps the two timers, and the watch for the agent's notice. Thread: engine only, but for note_refused().
#pragma once

#include <mutex>
#include <optional>

#include "runtime/base/log.h"
#include "runtime/coordinate/pending_ops.h"
#include "runtime/coordinate/step_source.h"
#include "runtime/engine/end_of_job.h"
#include "runtime/execute/submit_queue.h"
#include "runtime/execute_device/device_plane.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class JobEnding {
 public:
  // Parts is what it works on, all of which outlives it.
  struct Parts {
    const RankMap& map;
    Store* store = nullptr;  // null: nothing sends notices
    EventLoop& loop;
    SubmitQueue& queue;
    PendingOps& pending;
    StepSource& source;
    DevicePlane& devices;
    Log& log;
  };
  explicit JobEnding(const Parts& parts) : parts_(parts), end_(parts.map.rank, parts.map.size) {}
  JobEnding(const JobEnding&) = delete;
  JobEnding& operator=(const JobEnding&) = delete;

  // Watches for the agent's notice.
  Result<void> open();

  [[nodiscard]] const EndOfJob& state() const { return end_; }
  [[nodiscard]] bool is_over() const { return end_.over().has_value(); }

  // The events: see EndOfJob.
  void suspect(const Error& why) { carry_out(end_.suspect(why)); }
  void fail(const Error& cause) { carry_out(end_.fail(cause)); }
  void shut_down(int by_rank) { carry_out(end_.shut_down(by_rank)); }
  void abort(const std::string& cause) { carry_out(end_.on_abort(cause)); }
  void note_goodbye(int rank) { end_.on_goodbye(rank); }
  void end_link(int rank, const Error& why) { carry_out(end_.on_link_end(rank, why)); }
  void leave() { carry_out(end_.leave()); }
  // Without its loop the engine receives nothing any more, so this ends what can be ended.
  void fail_loop(const Error& cause);

  // After the end, when no collective uses their memory any more: fails what is pending, and says goodbye if it is
  // time.
  void finish();
  // The program learns by an operation, which is refused, that the job is over. Thread: any (mutex mu_).
  void note_refused();
  [[nodiscard]] bool is_finished() const { return end_.is_finished(parts_.source.channel().is_finished()); }

 private:
  void carry_out(const EndActions& actions);
  void fail_pending();
  void on_notice();
  // These carry out one action each.
  void act(const AwaitCause& action);
  void act(const AwaitOthers& action);
  void act(const AskToLeave& action);
  void act(const PassOn& action);
  void act(const CloseJob& action);
  void act(const TellAgent& action);
  void act(const TellOnceNoticed& action);
  void act(const TellIfPending& action);
  void act(const CloseOutput& action);
  void act(const FailPending& action);

  const Parts parts_;
  EndOfJob end_;
  WatchId notice_watch_ = 0;
  TimerId cause_timer_ = 0;
  // guarded by mu_
  std::mutex mu_;
  std::optional<FailureNews> untold_;
};

}  // namespace hvd
