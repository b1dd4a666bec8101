// StepWatch: what becomes of a graph's other collectives when one has failed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace hvd::front::tf {

// When ranks disagree on one collective of a graph, each rank's TensorFlow begins no further ones, but waits for those
// that it has begun; another rank may not have begun these, and never will. Each would wait for ever. So a rank whose
// step has failed, and still waits some seconds later for others of that step, leaves the job: then all end with an
// error, and the ranks can meet again.
//
// Thread: any.
class StepWatch {
 public:
  static StepWatch& shared();

  // A collective of this step was started, and has ended. `is_refused`: it failed in a way that does not end the job.
  void begin(std::int64_t step);
  void end(std::int64_t step, bool is_refused);

 private:
  using Clock = std::chrono::steady_clock;

  void watch();

  std::mutex mu_;
  std::condition_variable has_failed_;
  // guarded by mu_
  std::map<std::int64_t, int> pending_;               // of each step that has any
  std::map<std::int64_t, Clock::time_point> failed_;  // until when its others may end by themselves
  bool is_watching_ = false;
};

}  // namespace hvd::front::tf
