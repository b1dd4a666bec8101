#include "runtime/observe/timeline.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "runtime/observe/ticks.h"
#include "runtime/observe/timeline_writer.h"

namespace hvd {
namespace {

constexpr std::size_t kMostNameBytes = 240;
// Further tensors are left out: a program that gives each operation a new name would need ever more memory.
constexpr std::size_t kMostTensors = 100'000;
// The phases within an operation.
constexpr std::uint32_t kInner =
    bit_of(TracePhase::kQueue) | bit_of(TracePhase::kPack) | bit_of(TracePhase::kMove) | bit_of(TracePhase::kUnpack);

TraceRecord record_of(TraceRecord::Kind kind, std::uint64_t ticks, std::uint64_t value = 0) {
  TraceRecord record;
  record.kind = kind;
  record.ticks = ticks;
  record.value = value & 0xffffffU;
  return record;
}

TraceRecord phases_of(OpKind op, std::uint64_t ticks) {
  TraceRecord record = record_of(TraceRecord::Kind::kPhases, ticks);
  record.op = static_cast<unsigned>(op) & 0x1fU;
  return record;
}

}  // namespace

Timeline::Timeline(TimelineOptions options, std::function<void(const Error&)> on_failed)
    : options_(std::move(options)), on_failed_(std::move(on_failed)) {}

Timeline::~Timeline() {
  stop();
}

Result<void> Timeline::start(const std::string& path, bool marks_cycles) {
  return start([&path] { return open_timeline(path); }, marks_cycles);
}

Result<void> Timeline::start(const std::function<Result<TimelineFile>()>& open, bool marks_cycles) {
  const std::lock_guard starting(start_mu_);
  if (writer_ != nullptr) {
    return Error(Code::kInvalid, "a timeline is being written already; stop it first");
  }
  HVD_TRY_ASSIGN(TimelineFile file, open());
  const std::lock_guard lock(mu_);
  if (ring_ == nullptr) {
    ring_ = std::make_unique<TraceRing>(options_.ring_records);
  }
  while (ring_->take()) {
    // these were left at the end of an earlier file
  }
  dropped_.store(0);
  tensors_.clear();  // so that the new file gets the names
  open_phases_ = 0;
  HVD_TRY_ASSIGN(writer_, TimelineWriter::start(std::move(file), *ring_, dropped_, on_failed_));
  marks_cycles_ = marks_cycles;
  is_on_.store(true);
  return {};
}

void Timeline::stop() {
  const std::lock_guard starting(start_mu_);
  {
    const std::lock_guard lock(mu_);
    is_on_.store(false);
  }
  writer_.reset();
}

std::size_t Timeline::NameHash::operator()(const TraceKey& key) const {
  return std::hash<std::string_view>()(key.name) ^ (static_cast<std::size_t>(key.process_set) << 20U);
}

Timeline::Tensor* Timeline::find(const TraceKey& key) {
  const auto found = tensors_.find(key);
  return found == tensors_.end() ? nullptr : &found->second;
}

// Returns null if the tensor cannot be in the file. Its name goes into the ring first.
Timeline::Tensor* Timeline::find_or_add(const TraceKey& key) {
  if (Tensor* found = find(key); found != nullptr) {
    return found;
  }
  const auto number = static_cast<std::uint32_t>(tensors_.size() + 1);
  if (number > kMostTensors) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  if (!tell_name(number, key)) {
    return nullptr;
  }
  return &tensors_.emplace(Name{key.process_set, std::string(key.name)}, Tensor{number}).first->second;
}

bool Timeline::tell_name(std::uint32_t number, const TraceKey& key) {
  std::string name(key.name.substr(0, kMostNameBytes));
  if (key.process_set != 0) {
    name += " of process set " + std::to_string(key.process_set);
  }
  std::vector<TraceRecord> records = {record_of(TraceRecord::Kind::kName, 0, name.size())};
  records.front().tensor = number & 0xfffffU;
  for (std::size_t at = 0; at < name.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t payload = 0;
    std::memcpy(&payload, name.data() + at, std::min(sizeof payload, name.size() - at));
    records.push_back(record_of(TraceRecord::Kind::kPayload, payload));
  }
  return put_all(records);
}

// Leaves room for a record for the end of each open phase, so that each phase that begins in the file also ends in it.
bool Timeline::put_all(std::span<const TraceRecord> records) {
  if (ring_->has_room(records.size() + open_phases_) && ring_->put(records)) {
    return true;
  }
  dropped_.fetch_add(records.size(), std::memory_order_relaxed);
  return false;
}

// Ends those phases of `ends` that are open. A record that only ends phases uses their room.
void Timeline::put(Tensor& tensor, TraceRecord record, std::uint32_t ends, std::uint32_t begins) {
  ends &= tensor.open;
  const auto new_phases = static_cast<std::size_t>(std::popcount(begins));
  if (!ring_->has_room(1 + open_phases_ + new_phases) && (begins != 0 || record.kind == TraceRecord::Kind::kRank)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    begins = 0;
    record.kind = TraceRecord::Kind::kPhases;
  }
  if ((ends | begins) == 0 && record.kind == TraceRecord::Kind::kPhases) {
    return;
  }
  open_phases_ -= static_cast<std::size_t>(std::popcount(ends));
  tensor.open &= ~ends;
  record.tensor = tensor.number & 0xfffffU;
  record.ends = ends & 0x3fU;
  record.begins = begins & 0x3fU;
  put_all({&record, 1});
  open_phases_ += static_cast<std::size_t>(std::popcount(begins & ~tensor.open));
  tensor.open |= begins;
}

// Records the shape once, and again if it changes. False: the file has another one.
bool Timeline::put_shape(Tensor& tensor, Dtype dtype, std::span<const std::int64_t> shape) {
  Shape now;
  if (shape.size() > kMostExtents) {
    shape = {};
  } else {
    now = {static_cast<int>(shape.size()), dtype, {}};
    std::copy(shape.begin(), shape.end(), now.extents.begin());
  }
  if (now == tensor.shape) {
    return true;
  }
  std::array<TraceRecord, 1 + kMostExtents> records = {record_of(TraceRecord::Kind::kShape, 0, shape.size())};
  records[0].tensor = tensor.number & 0xfffffU;
  records[0].op = now.dims < 0 ? TraceRecord::kNoShape : static_cast<unsigned>(dtype) & 0x1fU;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    records[1 + i] = record_of(TraceRecord::Kind::kPayload, static_cast<std::uint64_t>(shape[i]));
  }
  if (!put_all(std::span<const TraceRecord>(records).first(1 + shape.size()))) {
    return false;
  }
  tensor.shape = now;
  return true;
}

std::uint64_t Timeline::begin_stage() {
  return is_on() ? ticks_now() : 0;
}

void Timeline::end_stage(Stage stage, std::uint64_t began, std::size_t bytes) {
  const std::uint64_t ended = ticks_now();
  const std::lock_guard lock(mu_);
  if (!is_on()) {
    return;
  }
  const std::array<TraceRecord, 3> records = {
      record_of(TraceRecord::Kind::kStage, began, static_cast<std::uint64_t>(stage)),
      record_of(TraceRecord::Kind::kPayload, ended), record_of(TraceRecord::Kind::kPayload, bytes)};
  put_all(records);
  if (ring_->is_filling()) {
    writer_->rouse();
  }
}

Timeline::Moment::Moment(Timeline& timeline) : timeline_(&timeline), lock_(timeline.mu_, std::defer_lock) {
  if (timeline.is_on()) {
    lock_.lock();
  }
  if (!lock_.owns_lock() || !timeline.is_on()) {
    timeline_ = nullptr;
    return;
  }
  ticks_ = ticks_now();
}

Timeline::Moment::~Moment() {
  if (timeline_ != nullptr && timeline_->ring_->is_filling()) {
    timeline_->writer_->rouse();
  }
}

void Timeline::Moment::asked(const TraceKey& key, OpKind kind, int rank) {
  Tensor* tensor = timeline_ == nullptr ? nullptr : timeline_->find_or_add(key);
  if (tensor == nullptr) {
    return;
  }
  TraceRecord record = phases_of(kind, ticks_);
  record.kind = TraceRecord::Kind::kRank;
  record.value = static_cast<unsigned>(rank) & 0xffffffU;
  timeline_->put(*tensor, record, 0, bit_of(TracePhase::kNegotiate) & ~tensor->open);
}

void Timeline::Moment::ready(const TraceKey& key, OpKind kind, bool runs_here) {
  Tensor* tensor = timeline_ == nullptr ? nullptr : timeline_->find_or_add(key);
  if (tensor != nullptr) {
    // On a device the one before may still be under way, where operations are told as done when they are launched.
    const std::uint32_t begins = runs_here ? bit_of(TracePhase::kOperation) | bit_of(TracePhase::kQueue) : 0U;
    timeline_->put(*tensor, phases_of(kind, ticks_), bit_of(TracePhase::kNegotiate), begins & ~tensor->open);
  }
}

void Timeline::Moment::begin(const TraceKey& key, OpKind kind, TracePhase phase) {
  if (Tensor* tensor = timeline_ == nullptr ? nullptr : timeline_->find_or_add(key); tensor != nullptr) {
    timeline_->put(*tensor, phases_of(kind, ticks_), kInner, bit_of(phase));
  }
}

void Timeline::Moment::pause(const TraceKey& key, OpKind kind) {
  if (Tensor* tensor = timeline_ == nullptr ? nullptr : timeline_->find(key); tensor != nullptr) {
    timeline_->put(*tensor, phases_of(kind, ticks_), kInner, 0);
  }
}

void Timeline::Moment::done(const TraceKey& key, OpKind kind, Dtype dtype, std::span<const std::int64_t> shape) {
  Tensor* tensor = timeline_ == nullptr ? nullptr : timeline_->find(key);
  if (tensor != nullptr && (tensor->open & bit_of(TracePhase::kOperation)) != 0) {
    TraceRecord record = phases_of(kind, ticks_);
    record.value = timeline_->put_shape(*tensor, dtype, shape) ? 0U : TraceRecord::kShapeDropped;
    timeline_->put(*tensor, record, kInner | bit_of(TracePhase::kOperation), 0);
  }
}

void Timeline::Moment::met(const TraceKey& key, OpKind kind, std::uint64_t began, Dtype dtype,
                           std::span<const std::int64_t> shape) {
  Tensor* tensor = timeline_ == nullptr ? nullptr : timeline_->find_or_add(key);
  if (tensor == nullptr) {
    return;
  }
  if (timeline_->marks_cycles_) {  // such an operation is a decision by itself
    const TraceRecord cycle = record_of(TraceRecord::Kind::kCycle, began);
    timeline_->put_all({&cycle, 1});
  }
  // Another rank may have asked for it in the usual way just before.
  timeline_->put(*tensor, phases_of(kind, began), 0, bit_of(TracePhase::kNegotiate) & ~tensor->open);
  timeline_->put(*tensor, phases_of(kind, ticks_), bit_of(TracePhase::kNegotiate),
                 bit_of(TracePhase::kOperation) & ~tensor->open);
  done(key, kind, dtype, shape);
}

void Timeline::Moment::cycle() {
  if (timeline_ != nullptr && timeline_->marks_cycles_) {
    const TraceRecord record = record_of(TraceRecord::Kind::kCycle, ticks_);
    timeline_->put_all({&record, 1});
  }
}

}  // namespace hvd
