// ActivityPage is the page of memory in which the libhvd of one rank says what it does. It is an anonymous file that
// the process keeps open and that has a name of its own, so whoever may look at the process's descriptors finds it: the
// node's agent reads it while somebody watches the job, and the rank does nothing for that.
//
// A reader does not map it, because the rank could make the file shorter. It reads the page twice and takes the second
// reading if both are equal and `turn` is even; see docs/memory-order.md.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/core/op_kind.h"

namespace hvd {

// ActivityCounts says what one kind of operation has come to. One thread at a time writes it.
struct ActivityCounts {
  std::atomic<std::uint64_t> operations = 0;  // finished without error
  std::atomic<std::uint64_t> bytes = 0;       // of their inputs
  // A step lasts from when this rank had asked for all its operations, and the step before was done, until it is done
  // or, on a device, launched. Fused operations share a step.
  std::atomic<std::uint64_t> lasted_ticks = 0;
  std::atomic<std::uint64_t> waited_ticks = 0;  // of these, until the other ranks had asked too
};

struct ActivityPage {
  static constexpr const char* kFileName = "hvd-activity";
  static constexpr std::uint32_t kMagic = 0x41647668;  // "hvdA"
  static constexpr std::uint32_t kVersion = 2;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t rank = -1;                             // of the job
  std::atomic<std::uint32_t> has_ended = 0;           // 1: the rank has left the job
  std::uint64_t opened_ns = 0;                        // CLOCK_MONOTONIC
  std::uint64_t opened_ticks = 0;                     // at the same time (ticks.h)
  std::array<ActivityCounts, kOpKindCount> counts{};  // by OpKind
  // The same for operations of the quick path, which another thread may write. Only every 17th of them reads a clock,
  // and counts for 17; how much of it was waiting is not known.
  std::array<ActivityCounts, kOpKindCount> quick{};

  // The oldest operation that this rank waits for; of operations that nobody needs to wait for nothing is known.
  std::atomic<std::uint32_t> turn = 0;  // odd while the fields below change
  std::uint64_t asked_ns = 0;           // when the program asked for it, CLOCK_MONOTONIC
  std::array<char, 24> operation{};     // "allreduce"; empty: none
  std::array<char, 96> tensor{};        // its name, which may be cut; both end with a zero
};

// The same on both sides, which may be of different processors' compilers or versions.
static_assert(sizeof(ActivityPage) == 872 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace hvd
