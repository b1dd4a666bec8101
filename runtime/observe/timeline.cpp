#include "runtime/observe/timeline.h"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/observe/ticks.h"
#include "runtime/observe/timeline_writer.h"

namespace hvd {
namespace {

// Kept free for ends, so that what has begun in the file also ends in it.
constexpr std::size_t kRoomForEnds = 4096;
constexpr std::size_t kMostNameBytes = 240;
// A program that gives each operation a name of its own would need ever more memory; the rest is left out.
constexpr std::size_t kMostTensors = 100'000;

std::uint32_t bit_of(TracePhase phase) {
  return 1U << static_cast<unsigned>(phase);
}

}  // namespace

Timeline::Timeline(TimelineOptions options, std::function<void(const Error&)> on_failed)
    : options_(std::move(options)), on_failed_(std::move(on_failed)) {}

Timeline::~Timeline() {
  stop();
}

Result<void> Timeline::start(const std::string& path, bool marks_cycles) {
  const std::lock_guard starting(start_mu_);
  if (writer_ != nullptr) {
    return Error(Code::kInvalid, "a timeline is being written already; stop it first");
  }
  const std::lock_guard lock(mu_);
  if (ring_ == nullptr) {
    ring_ = std::make_unique<TraceRing>(options_.ring_records);
  }
  while (ring_->take()) {
    // left by the end of an earlier file
  }
  dropped_.store(0);
  tensors_.clear();  // so that the new file has their names
  HVD_TRY_ASSIGN(writer_, TimelineWriter::start(path, *ring_, dropped_, on_failed_));
  ++files_;
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

// Null: it cannot be in the file. Its name goes into the ring first.
Timeline::Tensor* Timeline::tensor_of(const std::string& key) {
  const auto found = tensors_.find(key);
  if (found != tensors_.end()) {
    return &found->second;
  }
  if (tensors_.size() >= kMostTensors) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  std::string name = key.substr(0, std::min(key.find('\0'), kMostNameBytes));
  if (const auto nul = key.find('\0'); nul != std::string::npos) {
    name += " of process set " + key.substr(nul + 1);
  }
  const auto number = static_cast<std::uint32_t>(tensors_.size() + 1);
  std::vector<TraceRecord> records(TraceRecord::parts_of(name.size()));
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].kind = i == 0 ? TraceRecord::Kind::kName : TraceRecord::Kind::kMoreOfName;
    records[i].tensor = number;
    records[i].payload_bytes = static_cast<std::uint32_t>(name.size());
    const std::string part = name.substr(std::min(name.size(), i * TraceRecord::kPayload), TraceRecord::kPayload);
    std::copy(part.begin(), part.end(), records[i].payload);
  }
  if (!ring_->has_room(records.size() + kRoomForEnds) || !ring_->put(records)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  return &tensors_.emplace(key, Tensor{number, files_, 0}).first->second;
}

void Timeline::put(const Tensor& tensor, TraceRecord::Kind kind, OpKind op, TracePhase phase, int rank) {
  TraceRecord record;
  record.ticks = ticks_now();
  record.tensor = tensor.number;
  record.kind = kind;
  record.phase = static_cast<std::uint8_t>(phase);
  record.op = static_cast<std::uint8_t>(op);
  record.rank = rank;
  const bool is_end = kind == TraceRecord::Kind::kEnd;
  if ((!is_end && !ring_->has_room(1 + kRoomForEnds)) || !ring_->put({&record, 1})) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Timeline::open(Tensor& tensor, OpKind kind, TracePhase phase) {
  if (!ring_->has_room(1 + kRoomForEnds)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  tensor.open |= bit_of(phase);
  put(tensor, TraceRecord::Kind::kBegin, kind, phase, -1);
}

// Whether it was open.
bool Timeline::close(Tensor& tensor, TracePhase phase) {
  const bool was_open = (tensor.open & bit_of(phase)) != 0;
  tensor.open &= ~bit_of(phase);
  return was_open;
}

void Timeline::asked(const std::string& key, OpKind kind, int rank) {
  const std::lock_guard lock(mu_);
  Tensor* tensor = is_on() ? tensor_of(key) : nullptr;
  if (tensor == nullptr) {
    return;
  }
  if ((tensor->open & bit_of(TracePhase::kNegotiate)) == 0) {
    open(*tensor, kind, TracePhase::kNegotiate);
  }
  put(*tensor, TraceRecord::Kind::kRankReady, kind, TracePhase::kNegotiate, rank);
}

void Timeline::ready(const std::string& key, OpKind kind, bool runs_here) {
  end(key, kind, TracePhase::kNegotiate);
  if (runs_here) {
    begin(key, kind, TracePhase::kOperation);
    begin(key, kind, TracePhase::kQueue);
  }
}

void Timeline::begin(const std::string& key, OpKind kind, TracePhase phase) {
  const std::lock_guard lock(mu_);
  if (Tensor* tensor = is_on() ? tensor_of(key) : nullptr; tensor != nullptr) {
    open(*tensor, kind, phase);
  }
}

void Timeline::end(const std::string& key, OpKind kind, TracePhase phase) {
  const std::lock_guard lock(mu_);
  const auto found = is_on() ? tensors_.find(key) : tensors_.end();
  if (found != tensors_.end() && close(found->second, phase)) {
    put(found->second, TraceRecord::Kind::kEnd, kind, phase, -1);
  }
}

void Timeline::done(const std::string& key, OpKind kind, Dtype dtype, std::span<const std::int64_t> shape) {
  const std::lock_guard lock(mu_);
  const auto found = is_on() ? tensors_.find(key) : tensors_.end();
  if (found == tensors_.end() || !close(found->second, TracePhase::kOperation)) {
    return;
  }
  TraceRecord record;
  record.ticks = ticks_now();
  record.tensor = found->second.number;
  record.kind = TraceRecord::Kind::kEnd;
  record.phase = static_cast<std::uint8_t>(TracePhase::kOperation);
  record.op = static_cast<std::uint8_t>(kind);
  put_shape(record, dtype, shape);
  if (!ring_->put({&record, 1})) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Timeline::met(const std::string& key, OpKind kind, std::uint64_t began, Dtype dtype,
                   std::span<const std::int64_t> shape) {
  const std::lock_guard lock(mu_);
  const Tensor* tensor = is_on() ? tensor_of(key) : nullptr;
  if (tensor == nullptr) {
    return;
  }
  const auto record = [&](TraceRecord::Kind what, TracePhase phase, std::uint64_t ticks) {
    TraceRecord made;
    made.ticks = ticks;
    made.tensor = tensor->number;
    made.kind = what;
    made.phase = static_cast<std::uint8_t>(phase);
    made.op = static_cast<std::uint8_t>(kind);
    return made;
  };
  const std::uint64_t now = ticks_now();
  std::array records = {record(TraceRecord::Kind::kCycle, TracePhase::kNegotiate, began),  // of its own
                        record(TraceRecord::Kind::kBegin, TracePhase::kNegotiate, began),
                        record(TraceRecord::Kind::kEnd, TracePhase::kNegotiate, now),
                        record(TraceRecord::Kind::kBegin, TracePhase::kOperation, now),
                        record(TraceRecord::Kind::kEnd, TracePhase::kOperation, now)};
  put_shape(records.back(), dtype, shape);
  const auto wanted = std::span<const TraceRecord>(records).subspan(marks_cycles_ ? 0 : 1);
  if (!ring_->has_room(wanted.size() + kRoomForEnds) || !ring_->put(wanted)) {
    dropped_.fetch_add(wanted.size(), std::memory_order_relaxed);
  }
}

void Timeline::cycle() {
  const std::lock_guard lock(mu_);
  if (is_on() && marks_cycles_) {
    put(Tensor{}, TraceRecord::Kind::kCycle, OpKind::kBarrier, TracePhase::kNegotiate, -1);
  }
}

}  // namespace hvd
