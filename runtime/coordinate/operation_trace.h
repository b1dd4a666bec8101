// OperationTrace records in the timeline what happens to this rank's operations between their request and their end.
// The caller checks is_on() first, so that an engine without a timeline pays for one comparison.
// Thread: engine only, except is_on(), quick() and end().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/controller/message.h"
#include "runtime/execute/pending_op.h"
#include "runtime/execute/quick_path.h"
#include "runtime/observe/timeline.h"

namespace hvd {

class OperationTrace {
 public:
  // Makes the timeline, on rank 0, and starts it if a file is named. A training run is worth more than its timeline, so
  // a failure is logged and the job goes on.
  void open(const TimelineOptions& options, Log& log);

  [[nodiscard]] Timeline* timeline() const { return timeline_.get(); }
  [[nodiscard]] bool is_on() const { return timeline_ != nullptr && timeline_->is_on(); }

  void asked(int rank, const Request& request);
  // All ranks have asked; `runs_here`: the operations will run on this rank.
  void ready(const Response& response, std::span<const std::string> names, bool runs_here);
  // The same for what was asked for by a bit.
  void ready(const Request& request, bool runs_here);
  void decided();
  // Ends the current phase of operations that are not finished: a device has them now, or they have failed.
  void pause(std::span<PendingOp* const> ops);
  void end(std::span<PendingOp* const> ops);
  void end(std::span<const OpRef> ops);
  // An operation of the quick path waits for the others during nearly all of its time.
  void quick(int process_set, const QuickOp& op, std::uint64_t began);

 private:
  std::unique_ptr<Timeline> timeline_;  // on rank 0
};

}  // namespace hvd
