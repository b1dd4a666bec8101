#include "runtime/coordinate/bit_requests.h"

#include <algorithm>

#include "runtime/coordinate/submission_request.h"

namespace hvd {

bool BitRequests::ask(std::span<PendingOp* const> ops) {
  const int position = cache_.find(ops.front()->what.name);
  if (position < 0 || !is_request_of(cache_.at(position).request, ops)) {
    return false;
  }
  const auto at = static_cast<std::size_t>(position);
  asked_.resize(std::max(asked_.size(), at + 1));
  asked_[at].assign(ops.begin(), ops.end());
  ops.front()->position = position;
  unsent_.bits.set(position);
  return true;
}

const KnownBits* BitRequests::unsent() {
  if (unsent_.bits.empty()) {
    return nullptr;
  }
  unsent_.changes = cache_.changes();
  return &unsent_;
}

bool BitRequests::add_steps(const KnownHits& hits, StepRing& steps) {
  bool are_asked = true;
  hits.bits.for_each([&](int position) {
    are_asked = are_asked && cache_.has(position) && static_cast<std::size_t>(position) < asked_.size() &&
                !asked_[static_cast<std::size_t>(position)].empty();
  });
  if (!are_asked) {
    return false;
  }
  const ResponseCache::Plan& plan = cache_.plan(hits);
  for (std::size_t i = 0; i < plan.ends.size(); ++i) {
    add_step(plan.response(i), steps);
  }
  return true;
}

void BitRequests::add_step(std::span<const int> positions, StepRing& steps) {
  const ResponseCache::Known& first = cache_.at(positions.front());
  Step& step = steps.push();
  step.response.kind = first.request.kind;
  step.response.process_set = unsent_.process_set;
  step.response.is_shared = first.is_shared;
  step.response.is_device = first.request.is_device;
  for (const int position : positions) {
    const auto& dims = cache_.at(position).first_dims;
    step.response.first_dims.insert(step.response.first_dims.end(), dims.begin(), dims.end());
    auto& ops = asked_[static_cast<std::size_t>(position)];
    step.ops.insert(step.ops.end(), ops.begin(), ops.end());
    ops.front()->position = -1;
    ops.clear();
  }
}

void BitRequests::note_answered(const Response& response, const PendingOps& pending) {
  for (const std::string& name : response.names) {
    PendingOp* op = pending.find(response, name);
    if (op != nullptr && op->position >= 0) {
      asked_[static_cast<std::size_t>(op->position)].clear();
      op->position = -1;
    }
  }
}

Result<std::vector<Request>> BitRequests::remember(std::span<const Remembered> news, const PendingOps& pending) {
  std::vector<Request> again;
  for (const Remembered& what : news) {
    const std::vector<PendingOp*> ops = pending.named(unsent_.process_set, what.name);
    if (ops.empty()) {
      return Error(Code::kProtocol, "the coordinator remembers '" + what.name + "', which this rank has not asked for");
    }
    // This rank sent a bit for the position's old content, too late to count, so it must ask again. A bit that counts
    // keeps its position.
    const auto at = static_cast<std::size_t>(what.position);
    if (at < asked_.size() && !asked_[at].empty() && asked_[at].front() != ops.front()) {
      asked_[at].front()->position = -1;
      again.push_back(request_of(asked_[at]));
      again.back().is_again = true;
      asked_[at].clear();
    }
    HVD_TRY(cache_.remember(what, request_of(ops)));
  }
  return again;
}

}  // namespace hvd
