// TraceRing: what happens, on its way from who turns the engine to the timeline's writer: a bounded queue without a
// lock, for one thread that puts and one that takes. A full one refuses, so that a slow disk costs records and never
// time. (Lamport, Proving the correctness of multiprocess programs, 1977.)
//
// Thread: put() and has_room() one at a time; take() another.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/check.h"

namespace hvd {

struct TraceRecord {
  enum class Kind : std::uint16_t { kName, kMoreOfName, kBegin, kEnd, kRankReady, kCycle };
  static constexpr std::size_t kPayload = 40;
  // Records that a name takes.
  static constexpr std::size_t parts_of(std::size_t bytes) { return bytes / kPayload + 1; }

  std::uint64_t ticks = 0;
  std::uint32_t tensor = 0;
  Kind kind = Kind::kCycle;
  std::uint8_t phase = 0;
  std::uint8_t op = 0;              // an OpKind
  std::int32_t rank = -1;           // kRankReady
  std::uint32_t payload_bytes = 0;  // kName, kMoreOfName: of the whole name
  char payload[kPayload] = {};      // of a name; kEnd of an operation: dtype and extents
};
static_assert(sizeof(TraceRecord) == 64);

class TraceRing {
 public:
  // `capacity`: a power of two.
  explicit TraceRing(std::size_t capacity) : capacity_(capacity), records_(std::make_unique<TraceRecord[]>(capacity)) {
    HVD_CHECK(capacity > 0 && (capacity & (capacity - 1)) == 0);
  }

  [[nodiscard]] bool has_room(std::size_t count) const {
    return capacity_ - (put_.load(std::memory_order_relaxed) - taken_.load(std::memory_order_acquire)) >= count;
  }
  // All or none. False: there is no room.
  bool put(std::span<const TraceRecord> records) {
    if (!has_room(records.size())) {
      return false;
    }
    const std::uint64_t at = put_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < records.size(); ++i) {
      records_[(at + i) & (capacity_ - 1)] = records[i];
    }
    put_.store(at + records.size(), std::memory_order_release);
    return true;
  }
  std::optional<TraceRecord> take() {
    const std::uint64_t at = taken_.load(std::memory_order_relaxed);
    if (at == put_.load(std::memory_order_acquire)) {
      return std::nullopt;
    }
    const TraceRecord record = records_[at & (capacity_ - 1)];
    taken_.store(at + 1, std::memory_order_release);
    return record;
  }

 private:
  // constant after construction
  const std::size_t capacity_;
  const std::unique_ptr<TraceRecord[]> records_;
  // by who puts, by who takes; apart, so that they do not share a cache line
  alignas(64) std::atomic<std::uint64_t> put_ = 0;
  alignas(64) std::atomic<std::uint64_t> taken_ = 0;
};

}  // namespace hvd
