#include "runtime/controller/known_tensors.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd {
namespace {

// A tensor can be known if its response is one part (see plan_fusion) and is the same each time.
bool can_be_known(const Ready& ready) {
  const Request& request = ready.request;
  const auto is_alike = [&](const GroupTensor& tensor) {
    return tensor.dtype == request.dtype && tensor.is_device == request.is_device;
  };
  return ready.error_code == 0 && !ready.is_missed && request.kind != OpKind::kJoin && !is_change(request.kind) &&
         !is_noname(request.name) && std::all_of(request.group.begin(), request.group.end(), is_alike) &&
         ready.first_dims.size() <= control_wire::kMaxFirstDims;
}

}  // namespace

KnownTensors::KnownTensors(int size, std::size_t capacity) : size_(size), capacity_(capacity) {
  HVD_CHECK(capacity <= control_wire::kMaxPositions);
}

int KnownTensors::find(const std::string& name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? -1 : found->second;
}

Request KnownTensors::request_of(int position, int index) const {
  const Slot& known = slot(position);
  Request request = known.request;
  const auto place = [&](std::size_t tensor, std::vector<std::int64_t>& shape, std::int64_t& shared_at) {
    if (!known.first_dims.empty()) {
      shape.front() = known.first_dims[tensor * static_cast<std::size_t>(size_) + static_cast<std::size_t>(index)];
    }
    shared_at = known.is_shared ? shared_at : -1;
  };
  place(0, request.shape, request.shared_at);
  for (std::size_t i = 0; i < request.group.size(); ++i) {
    place(i + 1, request.group[i].shape, request.group[i].shared_at);
  }
  return request;
}

bool KnownTensors::ask(int position, int index, std::uint64_t serial) {
  Slot& known = slot(position);
  const auto at = static_cast<std::size_t>(index);
  if (known.has_asked[at]) {
    return false;
  }
  known.has_asked[at] = true;
  if (++known.asked == 1) {
    known.generation = generation_;
    known.serial = serial;
    ++unfinished_;
    ++fresh_incomplete_;
  }
  if (known.asked == size_) {
    --unfinished_;
    fresh_incomplete_ -= known.generation == generation_ ? 1 : 0;
    ready_.set(position);
  }
  return true;
}

void KnownTensors::forget_asks(int position) {
  Slot& known = slot(position);
  HVD_CHECK(known.asked < size_);
  if (known.asked > 0) {
    --unfinished_;
    fresh_incomplete_ -= known.generation == generation_ ? 1 : 0;
  }
  known.asked = 0;
  known.has_asked.assign(known.has_asked.size(), false);
}

std::vector<Unfinished> KnownTensors::unfinished() const {
  std::vector<Unfinished> all;
  for (const Slot& known : slots_) {
    if (known.asked == 0 || known.asked == size_) {
      continue;
    }
    Unfinished& one = all.emplace_back(Unfinished{known.serial, known.request.kind, known.request.name, {}});
    for (int index = 0; index < size_; ++index) {
      if (!known.has_asked[static_cast<std::size_t>(index)]) {
        one.missing.push_back(index);
      }
    }
  }
  return all;
}

void KnownTensors::take(PositionBits& out) {
  std::swap(out, ready_);
  ready_.clear();
  out.for_each([this](int position) {
    Slot& known = slot(position);
    known.asked = 0;
    known.has_asked.assign(known.has_asked.size(), false);
    known.used_at = ++uses_;
  });
  ++generation_;
  fresh_incomplete_ = 0;
}

std::optional<Remembered> KnownTensors::remember(const Ready& ready) {
  if (capacity_ == 0 || !can_be_known(ready)) {
    return std::nullopt;
  }
  int position = find(ready.request.name);
  if (position < 0) {
    position = make_room();
  }
  if (position < 0) {
    return std::nullopt;
  }
  Slot& known = slot(position);
  HVD_CHECK(known.asked == 0);
  if (known.changed_at != 0) {
    positions_.erase(known.request.name);
  }
  positions_.emplace(ready.request.name, position);
  known.request = ready.request;
  known.first_dims = ready.first_dims;
  known.is_shared = ready.is_shared;
  known.has_asked.assign(static_cast<std::size_t>(size_), false);
  known.changed_at = ++changes_;
  known.used_at = ++uses_;
  return Remembered{position, ready.request.name, ready.request.priority, ready.is_shared, ready.first_dims};
}

int KnownTensors::make_room() {
  if (slots_.size() < capacity_) {
    slots_.emplace_back();
    return static_cast<int>(slots_.size()) - 1;
  }
  int oldest = -1;
  for (int position = 0; position < static_cast<int>(slots_.size()); ++position) {
    const Slot& known = slot(position);
    if (known.asked == 0 && !known.is_held && (oldest < 0 || known.used_at < slot(oldest).used_at)) {
      oldest = position;
    }
  }
  return oldest;
}

}  // namespace hvd
