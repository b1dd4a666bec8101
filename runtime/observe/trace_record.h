// TraceRecord is one event of a tensor. It is as small as possible, since a step of a training program makes hundreds.
// Names and shapes are recorded once, in records of their own before the first that needs them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd {

// The phases of a tensor, the outer before the inner.
enum class TracePhase : std::uint8_t {
  kNegotiate,  // "NEGOTIATE_ALLREDUCE": some ranks have asked for it
  kOperation,  // "ALLREDUCE": from ready on all ranks until done here
  kQueue,      // "QUEUE": until it begins
  kPack,       // "MEMCPY_IN_FUSION_BUFFER"
  kMove,       // "HVD_ALLREDUCE": the collective itself
  kUnpack      // "MEMCPY_OUT_FUSION_BUFFER"
};
inline constexpr int kTracePhases = 6;

constexpr std::uint32_t bit_of(TracePhase phase) {
  return 1U << static_cast<unsigned>(phase);
}

// The widths are what the wire and OpKind allow: 2^20 tensors, 32 kinds and types, 2^24 ranks.
struct TraceRecord {
  enum class Kind : std::uint8_t {
    kPhases,  // `ends` end, the inner first, then `begins` begin, the outer first; `value`: 0, or kShapeDropped
    kRank,    // the same, and rank `value` has asked
    kCycle,   // the coordinator has made a decision
    kName,    // of `tensor`; `value` bytes, in the payloads that follow
    kShape,   // of `tensor` from now on: `op` is a Dtype, or kNoShape; `value` extents, a payload each
    kStage,   // `value` is a Stage that began then; payloads: the ticks of its end, its bytes
    kPayload  // `ticks` holds eight bytes for the record before
  };

  std::uint64_t ticks = 0;
  std::uint64_t tensor : 20 = 0;
  std::uint64_t op : 5 = 0;  // an OpKind
  Kind kind : 3 = Kind::kCycle;
  std::uint64_t ends : kTracePhases = 0;    // bits by TracePhase
  std::uint64_t begins : kTracePhases = 0;  // likewise
  std::uint64_t value : 24 = 0;

  static constexpr unsigned kNoShape = 0x1f;
  static constexpr unsigned kShapeDropped = 1;  // what ends here had another shape than was last recorded
  // The number of payload records of a name.
  static constexpr std::size_t payloads_of(std::size_t bytes) {
    return (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  }
};
static_assert(sizeof(TraceRecord) == 16);

}  // namespace hvd
