// StepRing is the queue of steps that the coordinator has decided, in their order, and that this rank has not run yet.
// Steps keep their memory from one use to the next. Thread: engine only.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/controller/message.h"
#include "runtime/execute/submit_queue.h"
#include "runtime/observe/ticks.h"

namespace hvd {

struct Step {
  Response response;
  // if all ranks know the tensors: this rank's operations, and then the response has no names
  std::vector<PendingOp*> ops;
  std::optional<int> shutdown_by;  // the step is the end of the job, which this rank asked for
  std::uint64_t known_at = 0;      // ticks

  void clear() {
    response.kind = OpKind::kBarrier;
    response.error_code = 0;
    response.error.clear();
    response.names.clear();
    response.first_dims.clear();
    response.counts.clear();
    response.prescale = 1.0;
    response.postscale = 1.0;
    response.answer = -1;
    response.process_set = 0;
    response.is_shared = false;
    ops.clear();
    shutdown_by.reset();
    known_at = ticks_now();
  }
};

class StepRing {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  // Adds an empty step at the end; it is valid until the next push.
  Step& push() {
    if (count_ == steps_.size()) {
      std::vector<Step> more(steps_.empty() ? 8 : steps_.size() * 2);
      for (std::size_t i = 0; i < count_; ++i) {
        std::swap(more[i], at(i));
      }
      steps_.swap(more);
      first_ = 0;
    }
    Step& step = at(count_++);
    step.clear();
    return step;
  }
  // Moves the first step to `into`, whose memory the ring uses again.
  void pop(Step& into) {
    std::swap(into, at(0));
    first_ = (first_ + 1) % steps_.size();
    --count_;
  }
  void clear() { count_ = 0; }

 private:
  Step& at(std::size_t index) { return steps_[(first_ + index) % steps_.size()]; }

  std::vector<Step> steps_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace hvd
