// The work of one GPU lane in packing and unpacking: one launch moves, casts and scales many pieces of memory. The same
// source is compiled for GPUs (kernels.cu), for the tests on the host, and for the fake driver.
//
// A piece is divided into units. A unit is as many elements as make 16 bytes on the side with the smaller elements (so
// that the other side's are 16, 32 or 64 bytes). Lane l of a warp takes units l, l + 32, l + 64 and l + 96 of a chunk
// of 128. So neighbouring lanes access neighbouring memory, and each lane has four loads in progress at once. A chunk
// belongs to one piece, and each warp takes consecutive chunks, so that it searches only for its first piece.
//
// Nothing here needs a GPU or owns memory. Value types and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/core/float16.h"
#include "runtime/core/scale.h"
#include "runtime/device/division.h"
#include "runtime/device/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace hvd {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kUnitsOfLane = 4;
inline constexpr unsigned kChunkUnits = kWarpLanes * kUnitsOfLane;
inline constexpr std::size_t kVectorBytes = 16;

// Move is one piece: `count` elements, and after them zeros up to element `padded`. Chunks are numbered through all
// pieces; `first_chunk` is this piece's first.
struct Move {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  std::uint64_t count = 0;
  std::uint64_t padded = 0;  // at least count
  std::uint64_t first_chunk = 0;
};

// This many moves are passed in the launch's arguments: with the other arguments they fit into the 4096 bytes that
// every driver accepts.
inline constexpr std::size_t kInlineMoves = 96;

struct MoveList {
  const Move* moves = nullptr;  // null: `own` is used
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  std::uint64_t chunks = 0;
  Scale scale;
  Move own[kInlineMoves];  // NOLINT(modernize-avoid-c-arrays): read by the device
};
static_assert(sizeof(MoveList) <= 4096);

// ---- elements: their form in memory, and the type in which they are computed ----

// For types computed in themselves, and for copies of any type, as an unsigned number of its size.
template <typename T>
struct AsItself {
  using Stored = T;
  using Value = T;
  HVD_HD static Value load(Stored stored) { return stored; }
  HVD_HD static Stored store(Value value) { return value; }
};

struct AsFloat16 {
  using Stored = std::uint16_t;
  using Value = float;
#ifdef __CUDA_ARCH__
  HVD_HD static Value load(Stored stored) { return __half2float(__ushort_as_half(stored)); }
  HVD_HD static Stored store(Value value) { return __half_as_ushort(__float2half_rn(value)); }
#else
  HVD_HD static Value load(Stored stored) { return float16_to_float(stored); }
  HVD_HD static Stored store(Value value) { return float_to_float16(value); }
#endif
};

struct AsBfloat16 {
  using Stored = std::uint16_t;
  using Value = float;
#ifdef __CUDA_ARCH__
  HVD_HD static Value load(Stored stored) { return __uint_as_float(static_cast<unsigned>(stored) << 16U); }
  HVD_HD static Stored store(Value value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
#else
  HVD_HD static Value load(Stored stored) { return bfloat16_to_float(stored); }
  HVD_HD static Stored store(Value value) { return float_to_bfloat16(value); }
#endif
};

// Integers are scaled in float64 and truncated toward zero, as in the CPU's loops; values out of range become the
// nearest limit.
template <typename T>
struct AsInteger {
  using Stored = T;
  using Value = double;
  HVD_HD static Value load(Stored stored) { return static_cast<double>(stored); }
  HVD_HD static Stored store(Value value) {
    constexpr bool kIsSigned = static_cast<T>(-1) < static_cast<T>(0);
    constexpr T kLowest = kIsSigned ? static_cast<T>(T{1} << (sizeof(T) * 8 - 1)) : T{0};
    constexpr T kHighest = static_cast<T>(~kLowest);
    if (!(value > static_cast<double>(kLowest))) {
      return value != value ? T{0} : kLowest;
    }
    return value >= static_cast<double>(kHighest) ? kHighest : static_cast<T>(value);
  }
};

struct AsBool {
  using Stored = std::uint8_t;
  using Value = double;
  HVD_HD static Value load(Stored stored) { return stored != 0 ? 1.0 : 0.0; }
  // A factor below one makes every value false.
  HVD_HD static Stored store(Value value) { return value >= 1.0 || value <= -1.0 ? 1 : 0; }
};

// Scaling is a Scale in the type in which elements are computed. It is the same for all lanes, so that none waits for
// another's branch.
template <typename Value>
class Scaling {
 public:
  HVD_HD explicit Scaling(const Scale& scale)
      : factor_(static_cast<Value>(scale.factor)),
        divisor_(static_cast<Value>(scale.divisor)),
        division_(static_cast<float>(scale.divisor)),
        is_scaled_(scale.factor != 1.0 || scale.divisor != 1.0),
        is_divided_(scale.divisor != 1.0) {}

  // Scales all elements of a unit, in place.
  template <std::size_t kCount>
  HVD_HD void apply(Value (&values)[kCount]) const {  // NOLINT(modernize-avoid-c-arrays): registers of the device
    if constexpr (std::is_integral_v<Value>) {
      return;  // integers are only copied; even an unused division would cost registers
    } else if (is_scaled_) {
      HVD_UNROLL
      for (Value& value : values) {
        value = static_cast<Value>(value * factor_);
      }
      if (is_divided_) {
        divide(values);
      }
    }
  }

 private:
  template <std::size_t kCount>
  HVD_HD void divide(Value (&values)[kCount]) const {  // NOLINT(modernize-avoid-c-arrays)
    if constexpr (std::is_same_v<Value, float>) {
      bool is_taken = true;
      HVD_UNROLL
      for (const float value : values) {
        is_taken &= division_.takes(value);
      }
      if (is_taken) {
        HVD_UNROLL
        for (float& value : values) {
          value = division_.quotient(value);
        }
        return;
      }
    }
    for (Value& value : values) {
      value = static_cast<Value>(value / divisor_);
    }
  }

  Value factor_;
  Value divisor_;
  FloatDivision division_;
  bool is_scaled_;
  bool is_divided_;
};

// ---- units ----

// The element types From and To have the same Value.
template <typename From, typename To>
struct Mover {
  using Value = typename From::Value;
  static constexpr std::size_t kFromBytes = sizeof(typename From::Stored);
  static constexpr std::size_t kToBytes = sizeof(typename To::Stored);
  static constexpr std::size_t kUnit = kVectorBytes / (kFromBytes < kToBytes ? kFromBytes : kToBytes);
  static constexpr std::size_t kFromUnit = kUnit * kFromBytes;
  static constexpr std::size_t kToUnit = kUnit * kToBytes;

  // A unit as it is read and as it is written.
  struct alignas(kVectorBytes) Input {
    typename From::Stored at[kUnit];  // NOLINT(modernize-avoid-c-arrays): registers of the device
  };
  struct alignas(kVectorBytes) Output {
    typename To::Stored at[kUnit];  // NOLINT(modernize-avoid-c-arrays)
  };

  HVD_HD static bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0; }

  // Read and write whole units; `is_even`: the address is aligned for vectors.
  HVD_HD static void read(Input& into, const std::uint8_t* from, bool is_even) {
    if (is_even) {
      read_vectors(into, from);
    } else {
      read_some(into, from, kUnit);
    }
  }
  HVD_HD static void read_some(Input& into, const std::uint8_t* from, std::size_t count) {
    HVD_UNROLL
    for (std::size_t i = 0; i < kUnit; ++i) {
      if (i < count) {
        read_one(into.at[i], from + i * kFromBytes);
      }
    }
  }
  HVD_HD static void write(std::uint8_t* to, const Output& from, bool is_even) {
    if (is_even) {
      write_vectors(to, from);
    } else {
      write_some(to, from, kUnit);
    }
  }
  HVD_HD static void write_some(std::uint8_t* to, const Output& from, std::size_t count) {
    HVD_UNROLL
    for (std::size_t i = 0; i < kUnit; ++i) {
      if (i < count) {
        write_one(to + i * kToBytes, from.at[i]);
      }
    }
  }

  HVD_HD static Output convert(const Input& input, const Scaling<Value>& by) {
    Value values[kUnit];  // NOLINT(modernize-avoid-c-arrays): registers of the device
    HVD_UNROLL
    for (std::size_t i = 0; i < kUnit; ++i) {
      values[i] = From::load(input.at[i]);
    }
    by.apply(values);
    Output output;
    HVD_UNROLL
    for (std::size_t i = 0; i < kUnit; ++i) {
      output.at[i] = To::store(values[i]);
    }
    return output;
  }

 private:
#ifdef __CUDA_ARCH__
  // The pointers have at least their element's alignment, so that the device may use its own loads.
  HVD_HD static void read_vectors(Input& into, const std::uint8_t* from) {
    auto* words = reinterpret_cast<uint4*>(&into);
    HVD_UNROLL
    for (std::size_t i = 0; i < kFromUnit / kVectorBytes; ++i) {
      words[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i);  // read once, so a cache is useless
    }
  }
  HVD_HD static void write_vectors(std::uint8_t* to, const Output& from) {
    const auto* words = reinterpret_cast<const uint4*>(&from);
    HVD_UNROLL
    for (std::size_t i = 0; i < kToUnit / kVectorBytes; ++i) {
      reinterpret_cast<uint4*>(to)[i] = words[i];
    }
  }
  HVD_HD static void read_one(typename From::Stored& into, const std::uint8_t* from) {
    into = *reinterpret_cast<const typename From::Stored*>(from);
  }
  HVD_HD static void write_one(std::uint8_t* to, typename To::Stored from) {
    *reinterpret_cast<typename To::Stored*>(to) = from;
  }
#else
  static void read_vectors(Input& into, const std::uint8_t* from) { std::memcpy(&into, from, kFromUnit); }
  static void write_vectors(std::uint8_t* to, const Output& from) { std::memcpy(to, &from, kToUnit); }
  static void read_one(typename From::Stored& into, const std::uint8_t* from) { std::memcpy(&into, from, kFromBytes); }
  static void write_one(std::uint8_t* to, typename To::Stored from) { std::memcpy(to, &from, kToBytes); }
#endif
};

// The number of chunks of a piece of this many elements, padding included.
constexpr std::uint64_t chunks_of(std::uint64_t padded, std::uint64_t unit) {
  return (padded + unit * kChunkUnits - 1) / (unit * kChunkUnits);
}

// Returns the piece of a chunk: the last one that begins at or before it. Pieces without chunks begin where the next
// one does, and are never the last of those.
HVD_HD std::uint32_t piece_of(const Move* moves, std::uint32_t count, std::uint64_t chunk) {
  std::uint32_t low = 0;
  std::uint32_t high = count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (moves[middle].first_chunk <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Moves one lane's units of the chunk at the end of a piece: some are whole, one may be partial, some are zeros.
template <typename M>
HVD_HD void move_end(const Move& move, std::uint64_t first_unit, const Scaling<typename M::Value>& by) {
  const bool is_from_even = M::is_aligned(move.from);
  const bool is_to_even = M::is_aligned(move.to);
  for (unsigned i = 0; i < kUnitsOfLane; ++i) {
    const std::uint64_t at = (first_unit + std::uint64_t{i} * kWarpLanes) * M::kUnit;
    if (at >= move.padded) {
      return;
    }
    typename M::Input input{};
    const std::uint64_t left = move.count > at ? move.count - at : 0;
    if (left >= M::kUnit) {
      M::read(input, move.from + at * M::kFromBytes, is_from_even);
    } else {
      M::read_some(input, move.from + at * M::kFromBytes, static_cast<std::size_t>(left));
    }
    typename M::Output output = M::convert(input, by);
    if (left < M::kUnit) {
      // The padding is set to zero and not scaled, because 0 * inf is NaN.
      HVD_UNROLL
      for (std::size_t e = 0; e < M::kUnit; ++e) {
        output.at[e] = e < left ? output.at[e] : typename M::Output{}.at[e];
      }
    }
    const std::uint64_t room = move.padded - at;
    if (room >= M::kUnit) {
      M::write(move.to + at * M::kToBytes, output, is_to_even);
    } else {
      M::write_some(move.to + at * M::kToBytes, output, static_cast<std::size_t>(room));
    }
  }
}

// Moves one lane's units of a chunk; `chunk` counts from the piece's first.
template <typename M>
HVD_HD void move_chunk(const Move& move, std::uint64_t chunk, unsigned lane, const Scaling<typename M::Value>& by) {
  const std::uint64_t first_unit = chunk * kChunkUnits + lane;
  if ((chunk + 1) * kChunkUnits * M::kUnit > move.count) {
    move_end<M>(move, first_unit, by);
    return;
  }
  const bool is_from_even = M::is_aligned(move.from);
  const bool is_to_even = M::is_aligned(move.to);
  const std::uint8_t* from = move.from + first_unit * M::kFromUnit;
  std::uint8_t* to = move.to + first_unit * M::kToUnit;
  typename M::Input input[kUnitsOfLane];  // NOLINT(modernize-avoid-c-arrays): registers of the device
  HVD_UNROLL
  for (unsigned i = 0; i < kUnitsOfLane; ++i) {
    M::read(input[i], from + i * kWarpLanes * M::kFromUnit, is_from_even);
  }
  HVD_UNROLL
  for (unsigned i = 0; i < kUnitsOfLane; ++i) {
    M::write(to + i * kWarpLanes * M::kToUnit, M::convert(input[i], by), is_to_even);
  }
}

// Does all the work of one lane; `warp` is one of `warps` in the launch.
template <typename M>
HVD_HD void move_lane(const MoveList& list, std::uint64_t warp, std::uint64_t warps, unsigned lane) {
  const Move* moves = list.moves != nullptr ? list.moves : list.own;
  // This cannot overflow: there are at most 2^44 chunks and 2^20 warps.
  std::uint64_t chunk = list.chunks * warp / warps;
  const std::uint64_t end = list.chunks * (warp + 1) / warps;
  if (chunk >= end) {
    return;
  }
  const Scaling<typename M::Value> by(list.scale);
  std::uint32_t piece = piece_of(moves, list.count, chunk);
  for (; chunk < end; ++chunk) {
    while (piece + 1 < list.count && moves[piece + 1].first_chunk <= chunk) {
      ++piece;
    }
    move_chunk<M>(moves[piece], chunk - moves[piece].first_chunk, lane, by);
  }
}

// Every kernel as X(name, From, To); the names are what the device code exports.
#define HVD_MOVE_KERNELS(X)                                              \
  X(hvd_move_copy1, AsItself<std::uint8_t>, AsItself<std::uint8_t>)      \
  X(hvd_move_copy2, AsItself<std::uint16_t>, AsItself<std::uint16_t>)    \
  X(hvd_move_copy4, AsItself<std::uint32_t>, AsItself<std::uint32_t>)    \
  X(hvd_move_copy8, AsItself<std::uint64_t>, AsItself<std::uint64_t>)    \
  X(hvd_move_uint8, AsInteger<std::uint8_t>, AsInteger<std::uint8_t>)    \
  X(hvd_move_int8, AsInteger<std::int8_t>, AsInteger<std::int8_t>)       \
  X(hvd_move_uint16, AsInteger<std::uint16_t>, AsInteger<std::uint16_t>) \
  X(hvd_move_int16, AsInteger<std::int16_t>, AsInteger<std::int16_t>)    \
  X(hvd_move_int32, AsInteger<std::int32_t>, AsInteger<std::int32_t>)    \
  X(hvd_move_int64, AsInteger<std::int64_t>, AsInteger<std::int64_t>)    \
  X(hvd_move_bool, AsBool, AsBool)                                       \
  X(hvd_move_float16, AsFloat16, AsFloat16)                              \
  X(hvd_move_bfloat16, AsBfloat16, AsBfloat16)                           \
  X(hvd_move_float32, AsItself<float>, AsItself<float>)                  \
  X(hvd_move_float64, AsItself<double>, AsItself<double>)                \
  X(hvd_move_float32_float16, AsItself<float>, AsFloat16)                \
  X(hvd_move_float32_bfloat16, AsItself<float>, AsBfloat16)              \
  X(hvd_move_float16_float32, AsFloat16, AsItself<float>)                \
  X(hvd_move_bfloat16_float32, AsBfloat16, AsItself<float>)

}  // namespace hvd
