// JobEnd decides how a job ends: by which cause if it fails, and when nothing of it is left. Pure.
#pragma once

#include "launcher/state/job_actions.h"
#include "launcher/state/job_events.h"
#include "launcher/state/running_job.h"

namespace hvd::launch {

class JobEnd {
 public:
  explicit JobEnd(RunningJob& job) : job_(job) {}

  // These end a job from outside its ranks.
  JobActions handle(const Interrupted& event);
  JobActions handle(const OutputFailed& event);
  JobActions handle(const FilesFailed& event);
  JobActions handle(const EngineEnded& event);
  JobActions handle(const Misplaced& event);
  JobActions handle(const TimedOut& event);
  JobActions handle(const StopTimedOut& event);
  // Notes an event that arrives after all ranks have ended: writing the last of the output may still fail.
  void note_late(const JobEvent& event);

  // Records the cause if it is the first, and stops all ranks.
  JobActions stop_for(Cause cause, int signo);
  // Ends what is left when all ranks that train have ended: parameter servers never end by themselves, ranks of an
  // elastic job may still wait to be taken in, and a node whose rank was done without is not over before it is told so.
  JobActions let_others_go();
  JobActions finish_if_over();

  // Returns 0 or the cause's code; kOutputFailed for a job that succeeded, but whose files could not all be written.
  [[nodiscard]] int exit_code() const;
  [[nodiscard]] bool has_kept_all() const { return has_kept_all_; }
  [[nodiscard]] bool was_interrupted() const { return interrupts_ > 0; }
  // The ranks that train have ended, and the others are being ended.
  [[nodiscard]] bool is_letting_go() const { return is_letting_go_; }

 private:
  static Cause cause_of(const OutputFailed& event);

  RunningJob& job_;
  int interrupts_ = 0;
  bool is_letting_go_ = false;
  bool has_kept_all_ = true;
};

}  // namespace hvd::launch
