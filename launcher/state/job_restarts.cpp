#include "launcher/state/job_restarts.h"

namespace hvd::launch {
namespace {

// So many times a job begins with fewer of the hosts that it was told of. Each time some more cannot be reached.
constexpr int kMostUnreachedStarts = 5;

}  // namespace

bool JobRestarts::on_ended(const Placement& placement, const JobState& state, TimePoint now,
                           const std::vector<Duration>& ranks_may_stay) {
  is_due_ = false;
  has_kept_all_ = has_kept_all_ && state.has_kept_all();
  if (!state.cause() || state.was_interrupted()) {
    return false;
  }
  const Cause::Kind kind = state.cause()->kind;
  // Named hosts that cannot be reached at the very first start are the user's mistake; later they are lost.
  const bool is_unreached = kind == Cause::Kind::kUnreached && (number_ > 0 || limits_.may_wait);
  if (!is_unreached && (kind != Cause::Kind::kLoss || number_ == limits_.restarts)) {
    return false;
  }
  for (const NodePlan& node : placement.nodes) {
    if (state.is_lost(node.index)) {
      // Ranks that cannot be reached may live on, and would share the host's GPUs with new ones.
      const auto index = static_cast<std::size_t>(node.index);
      offers_.exclude(node.host.name, now, index < ranks_may_stay.size() ? ranks_may_stay[index] : Duration::zero());
    }
  }
  // At the first start nothing is waited for: where hosts cannot be reached, the mistake may be one for all of them.
  const bool is_first = is_unreached && number_ == 0;
  unreached_starts_ += is_first ? 1 : 0;
  const bool may_wait = limits_.may_wait && !is_first;
  is_due_ = (may_wait || offers_.seats(now).count >= limits_.least) && unreached_starts_ <= kMostUnreachedStarts;
  number_ += is_due_ && !is_unreached ? 1 : 0;
  return is_due_;
}

}  // namespace hvd::launch
