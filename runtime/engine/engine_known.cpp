// Tensors that all ranks of a process set know: this rank's half of the response cache (controller/response_cache.h).
// See engine_impl.h.
#include "runtime/coordinate/submission_request.h"
#include "runtime/engine/engine_impl.h"

namespace hvd {
namespace {

Error not_asked(const Remembered& what) {
  return Error(Code::kProtocol, "the coordinator remembers '" + what.name + "', which this rank has not asked for");
}

}  // namespace

// Asks for these operations (one, or all of a group) by a bit if they are known; returns whether it did. send_bits()
// sends it.
bool Engine::Impl::ask_by_bit(ProcessSet& set, std::span<PendingOp* const> ops) {
  const int position = set.cache->find(ops.front()->what.name);
  if (position < 0 || !is_request_of(set.cache->at(position).request, ops)) {
    return false;
  }
  const auto at = static_cast<std::size_t>(position);
  set.asked_by_bit.resize(std::max(set.asked_by_bit.size(), at + 1));
  set.asked_by_bit[at].assign(ops.begin(), ops.end());
  ops.front()->position = position;
  set.bits.bits.set(position);
  return true;
}

void Engine::Impl::send_bits() {
  for (auto& [number, set] : sets_) {
    if (set.bits.bits.empty()) {
      continue;
    }
    set.bits.process_set = number;
    set.bits.changes = set.cache->changes();
    if (!is_coordinator()) {
      append_bits(frames_, set.bits);
    } else if (!is_shutdown_announced_) {
      const Result<void> added = coordinator_->add_known(0, set.bits);
      HVD_CHECK(added.ok());  // the submit queue has refused what the coordinator would refuse
    }
    set.bits.bits.clear();
  }
}

// All ranks do these now; this adds a step for each response.
Result<void> Engine::Impl::take_hits(const KnownHits& hits) {
  const auto found = sets_.find(hits.process_set);
  if (found != sets_.end() && !found->second.executor) {
    return {};  // of a set without this rank
  }
  bool are_asked = found != sets_.end();
  hits.bits.for_each([&](int position) {
    are_asked = are_asked && found->second.cache->has(position) &&
                static_cast<std::size_t>(position) < found->second.asked_by_bit.size() &&
                !found->second.asked_by_bit[static_cast<std::size_t>(position)].empty();
  });
  if (!are_asked) {
    return Error(Code::kProtocol, "the coordinator ordered what rank " + std::to_string(parts_.map.rank) +
                                      " has not asked for in process set " + std::to_string(hits.process_set));
  }
  const ResponseCache::Plan& plan = found->second.cache->plan(hits);
  for (std::size_t i = 0; i < plan.ends.size(); ++i) {
    add_step(found->second, hits.process_set, plan.response(i));
  }
  return {};
}

void Engine::Impl::add_step(ProcessSet& set, std::int32_t number, std::span<const int> positions) {
  const ResponseCache::Known& first = set.cache->at(positions.front());
  Step& step = steps_.push();
  step.response.kind = first.request.kind;
  step.response.process_set = number;
  step.response.is_shared = first.is_shared;
  step.response.is_device = first.request.is_device;
  for (const int position : positions) {
    const auto& dims = set.cache->at(position).first_dims;
    step.response.first_dims.insert(step.response.first_dims.end(), dims.begin(), dims.end());
    auto& ops = set.asked_by_bit[static_cast<std::size_t>(position)];
    step.ops.insert(step.ops.end(), ops.begin(), ops.end());
    ops.front()->position = -1;
    ops.clear();
  }
}

// Clears the bits of operations that are answered by name, because other ranks had asked for them by message.
void Engine::Impl::note_answered(const Response& response) {
  const auto set = sets_.find(response.process_set);
  for (const std::string& name : response.names) {
    PendingOp* op = find_op(response, name);
    if (op != nullptr && op->position >= 0 && set != sets_.end()) {
      set->second.asked_by_bit[static_cast<std::size_t>(op->position)].clear();
      op->position = -1;
    }
  }
}

// Returns this rank's operations of this name, one or a group; none if it has not asked for them.
std::vector<PendingOp*> Engine::Impl::ops_named(std::int32_t process_set, const std::string& name) {
  const auto found = pending_.find(OpKey{process_set, name});
  if (found == pending_.end()) {
    return {};
  }
  std::vector<PendingOp*> ops = {found->second.get()};
  ops.insert(ops.end(), ops.front()->group.begin(), ops.front()->group.end());
  return ops;
}

Result<void> Engine::Impl::remember(std::int32_t process_set, std::span<const Remembered> news) {
  const auto found = sets_.find(process_set);
  if (found == sets_.end() || !found->second.executor) {
    return {};  // of a set without this rank
  }
  ProcessSet& set = found->second;
  std::vector<Request> again;
  for (const Remembered& what : news) {
    const std::vector<PendingOp*> ops = ops_named(process_set, what.name);
    if (ops.empty()) {
      return not_asked(what);
    }
    // This rank sent a bit for the position's old content, too late to count, so it must ask again. A bit that counts
    // keeps its position.
    const auto at = static_cast<std::size_t>(what.position);
    if (at < set.asked_by_bit.size() && !set.asked_by_bit[at].empty() && set.asked_by_bit[at].front() != ops.front()) {
      set.asked_by_bit[at].front()->position = -1;
      again.push_back(request_of(set.asked_by_bit[at]));
      set.asked_by_bit[at].clear();
    }
    HVD_TRY(set.cache->remember(what, request_of(ops)));
  }
  HVD_CHECK(again.empty() || !is_coordinator());  // the coordinator's own bits are never late
  set.counters->add_asked(again.size(), 0);
  frames_.clear();
  append_requests(frames_, again);
  send_frames();
  return {};
}

}  // namespace hvd
