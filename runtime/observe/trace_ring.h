// TraceRing is the queue from the thread that runs the engine to the timeline's writer. It is bounded and lock-free,
// for one thread that puts and one that takes. A full ring refuses records, so that a slow disk costs records and never
// time (Lamport, Proving the correctness of multiprocess programs, 1977).
//
// Thread: put() and has_room() one at a time; take() another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/base/check.h"
#include "runtime/observe/trace_record.h"

namespace hvd {

class TraceRing {
 public:
  // `capacity` is a power of two.
  explicit TraceRing(std::size_t capacity) : capacity_(capacity), records_(std::make_unique<TraceRecord[]>(capacity)) {
    HVD_CHECK(capacity > 0 && (capacity & (capacity - 1)) == 0);
  }

  [[nodiscard]] bool has_room(std::size_t count) const {
    return capacity_ - (put_.load(std::memory_order_relaxed) - taken_.load(std::memory_order_acquire)) >= count;
  }
  // Puts all records or none. False: there is no room.
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
  // More than half of the ring waits to be taken.
  [[nodiscard]] bool is_filling() const { return !has_room(capacity_ / 2); }

 private:
  // constant after construction
  const std::size_t capacity_;
  const std::unique_ptr<TraceRecord[]> records_;
  // put_ is written by the putting thread, taken_ by the taking one; aligned so that they do not share a cache line
  alignas(64) std::atomic<std::uint64_t> put_ = 0;
  alignas(64) std::atomic<std::uint64_t> taken_ = 0;
};

}  // namespace hvd
