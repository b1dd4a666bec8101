#include "launcher/state/job_restarts.h"

namespace hvd::launch {

bool JobRestarts::on_ended(const Placement& placement, const JobState& state, TimePoint now) {
  is_due_ = false;
  has_kept_all_ = has_kept_all_ && state.has_kept_all();
  if (!state.cause() || state.was_interrupted()) {
    return false;
  }
  const Cause::Kind kind = state.cause()->kind;
  // Hosts that cannot be reached at the very first start are the user's mistake; later they are lost.
  const bool is_unreached = kind == Cause::Kind::kUnreached && number_ > 0;
  if (!is_unreached && (kind != Cause::Kind::kLoss || number_ == limits_.restarts)) {
    return false;
  }
  for (const NodePlan& node : placement.nodes) {
    if (state.is_lost(node.index)) {
      offers_.exclude(node.host.name, now);
    }
  }
  is_due_ = limits_.may_wait || offers_.seats(now).count >= limits_.least;
  number_ += is_due_ && !is_unreached ? 1 : 0;
  return is_due_;
}

}  // namespace hvd::launch
