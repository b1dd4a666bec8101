// LastOutput writes out the last of what the ranks printed, to readers that may be slow or gone.
//
// Thread: loop only.
#pragma once

#include "launcher/run/job_parts.h"

namespace hvd::launch {

class LastOutput {
 public:
  explicit LastOutput(const JobParts& job) : job_(job) {}
  ~LastOutput() { job_.loop.cancel(timer_); }
  LastOutput(const LastOutput&) = delete;
  LastOutput& operator=(const LastOutput&) = delete;

  // Makes a job that is being stopped end whether or not somebody reads what it prints: from then on nobody waits.
  void stop_waiting_in(Duration delay);
  // Blocks until all is written, or the readers have had their time. Call it after the loop has ended.
  Result<void> flush();
  // The same, before there is a job, or where it was refused.
  void flush_refusal();
  // Warns of what was not written, and gives nobody any more time.
  void tell_unwritten();
  // Returns true if all ranks have ended, so that only readers are still waited for; the signal cuts that short.
  bool on_signal(int signo);
  // The signal that did so; 0: none has.
  [[nodiscard]] int cut_short_by() const { return cut_short_by_; }

 private:
  const JobParts& job_;
  TimerId timer_ = 0;
  bool is_flushing_ = false;
  bool is_reader_stuck_ = false;
  int cut_short_by_ = 0;
};

}  // namespace hvd::launch
