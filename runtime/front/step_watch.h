// StepWatch ends the job when one collective of a compiled step has failed and others of that step would wait for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace hvd::front {

// When ranks disagree on one collective of a step, each rank's framework starts no further ones, but waits for those
// that it has started. Another rank may not have started the same ones, and never will, so each would wait for ever.
// Therefore a rank leaves the job if its step has failed and other collectives of that step still wait some seconds
// later. Then all ranks end with an error, and can join again.
//
// Thread: any.
class StepWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // `patience`: how long the other collectives of a failed step may still wait. `leave` is called once for each step
  // that takes longer, from the watch's own thread, with the number of its collectives. The object lives as long as the
  // process, because that thread never ends. `numbers`: whether another step may soon have the number of one that
  // failed.
  enum class Numbers : std::uint8_t { kUnique, kUsedAgain };
  StepWatch(Clock::duration patience, Numbers numbers, std::function<void(int)> leave)
      : patience_(patience), numbers_(numbers), leave_(std::move(leave)) {}

  // Notes that a collective of this step was started, or has ended. `is_refused`: it failed in a way that does not end
  // the job.
  void begin(std::int64_t step);
  void end(std::int64_t step, bool is_refused);

 private:
  void start_watching();
  void watch();

  // constant after construction
  const Clock::duration patience_;
  const Numbers numbers_;
  const std::function<void(int)> leave_;
  std::mutex mu_;
  std::condition_variable has_failed_;
  // guarded by mu_
  std::map<std::int64_t, int> pending_;               // collectives in progress, by step
  std::map<std::int64_t, Clock::time_point> failed_;  // by failed step: when to stop waiting for its other collectives
  bool is_watching_ = false;
};

// Returns the watch of this process's steps, which leaves libhvd's job, and says so on standard error.
StepWatch& watch_of_steps(StepWatch::Numbers numbers);

}  // namespace hvd::front
