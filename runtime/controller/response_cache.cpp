#include "runtime/controller/response_cache.h"

#include <algorithm>

#include "runtime/core/shape.h"

namespace hvd {
namespace {

// A program that asks for its tensors one by one has steps that divide at varying places; this many plans cover most of
// them.
constexpr std::size_t kPlans = 16;

// Returns the bytes of one tensor as it travels, with the rows of all ranks.
std::size_t bytes_of(const std::vector<std::int64_t>& shape, Dtype dtype, std::span<const std::int64_t> first_dims) {
  if (first_dims.empty()) {
    return size_bytes_of(shape, dtype).value_or(SIZE_MAX);
  }
  std::vector<std::int64_t> whole = shape;
  whole.front() = 0;
  for (const std::int64_t rows : first_dims) {
    if (__builtin_add_overflow(whole.front(), rows, &whole.front())) {
      return SIZE_MAX;
    }
  }
  return size_bytes_of(whole, dtype).value_or(SIZE_MAX);
}

bool are_alike(const Request& a, const Request& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root_rank == b.root_rank &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.is_device == b.is_device;
}

}  // namespace

Result<void> ResponseCache::remember(const Remembered& what, Request request) {
  const std::size_t tensors = request.group.size() + 1;
  const std::size_t dims = request.kind == OpKind::kAllgather ? tensors * size_ : 0;
  if (what.position > static_cast<int>(known_.size()) || what.first_dims.size() != dims ||
      (dims != 0 && request.shape.empty())) {
    return Error(Code::kProtocol, "the coordinator remembers '" + what.name + "' as something else than it is");
  }
  if (what.position == static_cast<int>(known_.size())) {
    known_.emplace_back();
  }
  Slot& slot = known_[static_cast<std::size_t>(what.position)];
  if (const auto old = positions_.find(slot.what.request.name);
      old != positions_.end() && old->second == what.position) {
    positions_.erase(old);
  }
  positions_[what.name] = what.position;
  slot.bytes = 0;
  slot.tensors = tensors;
  slot.priority = what.priority;
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto rows =
        dims == 0 ? std::span<const std::int64_t>() : std::span(what.first_dims).subspan(i * size_, size_);
    const auto& shape = i == 0 ? request.shape : request.group[i - 1].shape;
    slot.bytes = sum_bytes(slot.bytes, bytes_of(shape, request.dtype, rows));
  }
  slot.what = Known{std::move(request), what.is_shared, what.first_dims};
  ++changes_;
  for (Made& made : made_) {
    made.bits.clear();
  }
  return {};
}

int ResponseCache::find(std::string_view name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? -1 : found->second;
}

const ResponseCache::Plan& ResponseCache::plan(const KnownHits& hits) {
  for (const Made& made : made_) {
    if (made.bits == hits.bits && made.fusion_bytes == hits.fusion_bytes && made.fuses_groups == hits.fuses_groups) {
      return made.plan;
    }
  }
  reserve_plans();
  Made& made = made_[next_made_];
  next_made_ = (next_made_ + 1) % kPlans;
  made.fusion_bytes = hits.fusion_bytes;
  made.fuses_groups = hits.fuses_groups;
  made.bits.assign(hits.bits.words());
  make(hits, made.plan);
  ++plans_made_;
  return made.plan;
}

// Reserves memory, so that the next plans allocate nothing, whatever their bits are.
void ResponseCache::reserve_plans() {
  if (!made_.empty() && made_.front().plan.order.capacity() >= known_.size()) {
    return;
  }
  made_.resize(kPlans);
  sorted_.reserve(known_.size());
  for (Made& made : made_) {
    made.bits.reserve(static_cast<int>(known_.size()));
    made.plan.order.reserve(known_.size());
    made.plan.ends.reserve(known_.size());
  }
}

void ResponseCache::make(const KnownHits& hits, Plan& plan) {
  plan.order.clear();
  plan.ends.clear();
  sorted_.clear();
  hits.bits.for_each([this](int position) { sorted_.push_back(position); });
  std::sort(sorted_.begin(), sorted_.end(), [this](int a, int b) {
    return slot(a).priority != slot(b).priority ? slot(a).priority > slot(b).priority : a < b;
  });
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    if (sorted_[i] >= 0) {
      add_response(i, hits, plan);
    }
  }
}

// Adds one response. Positions that it takes become -1 in sorted_. See plan_fusion() for the rules.
void ResponseCache::add_response(std::size_t first, const KnownHits& hits, Plan& plan) {
  const Slot& head = slot(sorted_[first]);
  plan.order.push_back(sorted_[first]);
  std::size_t bytes = head.bytes;
  std::size_t tensors = head.tensors;
  std::size_t dims = head.what.first_dims.size();
  const bool is_alone =
      !is_groupable(head.what.request.kind) || (!hits.fuses_groups && !head.what.request.group.empty());
  for (std::size_t j = first + 1; !is_alone && j < sorted_.size() && bytes < hits.fusion_bytes; ++j) {
    if (sorted_[j] < 0) {
      continue;
    }
    const Slot& other = slot(sorted_[j]);
    const std::size_t other_dims = other.what.first_dims.size();
    if (!travel_together(head, other, hits.fuses_groups) || other.bytes > hits.fusion_bytes - bytes ||
        tensors + other.tensors > control_wire::kMaxGroupTensors ||
        dims + other_dims > std::max(control_wire::kMaxFirstDims, other_dims)) {
      continue;
    }
    plan.order.push_back(sorted_[j]);
    bytes += other.bytes;
    tensors += other.tensors;
    dims += other_dims;
    sorted_[j] = -1;
  }
  plan.ends.push_back(plan.order.size());
}

bool ResponseCache::travel_together(const Slot& a, const Slot& b, bool fuses_groups) const {
  return are_alike(a.what.request, b.what.request) && a.what.is_shared == b.what.is_shared &&
         (fuses_groups || b.what.request.group.empty());
}

}  // namespace hvd
