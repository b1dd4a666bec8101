// Tuning: the sizes at which the runtime changes its way of moving data on CPUs. `hvdrun bench --tune` measures them
// for a placement (core/tuning_table.h); without that they are what was measured on the machines this was written on.
//
// Ranks that chose differently would read what another never wrote, so a job has one Tuning: rank 0's, which all get
// when they meet (Mesh::join). Within a node no choice changes a result; between nodes the order of a sum may be
// another. Value type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd {

struct Tuning {
  // Within a node (execute/quick_path.h): an allreduce of at most so much is done by the threads that call it ...
  std::size_t quick_bytes = 128U << 10U;
  // ... in one round while it is no larger than this, and all ranks' data together no larger than that; else in two.
  std::size_t quick_whole_bytes = 16U << 10U;
  std::size_t quick_read_bytes = 32U << 10U;
  // In the engine (algo/node_reduction.cpp): likewise what is reduced behind one barrier.
  std::size_t small_bytes = 4U << 10U;
  std::size_t small_read_bytes = 32U << 10U;
  // What a rank stages at a time. Measured on two cores with 1 to 64 MiB of float32, a second cache of 1 MiB each: with
  // chunks of up to 256 KiB what one has written is still in its own cache, not in the one they share, when the other
  // reads it, which takes twice as long; chunks of 1 MiB and more crowd the shared one.
  std::size_t chunk_bytes = 512U << 10U;
  // What moves at once between nodes where the ranks of a node have work of their own to do. Measured with 64 MiB on a
  // link of 1 Gbit/s: with more segments the links idle more often at their ends, with fewer of them the first
  // reduction and the last broadcast take longer.
  std::size_t segment_bytes = 4U << 20U;
  // Between nodes data is received and reduced in pieces of this size: what was just received is reduced while it is in
  // the cache and while the kernel receives the next piece.
  std::size_t wire_bytes = 256U << 10U;
  // Between nodes an allreduce goes in pairs, with few exchanges, while no node sends more than so much in all of them;
  // else along a ring, with the fewest bytes.
  std::size_t pairs_bytes = 128U << 10U;
  // Tensors are fused to at most so much, where nobody has said otherwise (HOROVOD_FUSION_THRESHOLD). 0: not at all.
  std::size_t fusion_bytes = 128U << 20U;

  friend bool operator==(const Tuning&, const Tuning&) = default;
};

// How often a node sends all of it in pairs, where there are so many.
constexpr std::size_t pair_rounds(int nodes) {
  return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(nodes) - 1));
}

// Pieces that data is cut into end at multiples of it, which every element's size divides.
inline constexpr std::size_t kTuningGrain = 64;

struct TuningField {
  const char* name;
  std::size_t Tuning::* value;
  std::size_t least;
  std::size_t most;  // what buffers are made for
};

// All of them, in the order in which they are written.
std::span<const TuningField> tuning_fields();
// kInvalid: the name, the value, and what it should be.
Result<void> check(const Tuning& tuning);
// "quick_bytes 131072, ..."
std::string text_of(const Tuning& tuning);

// As ranks tell it each other (base/bytes.h): u16 version | u64 for each field. Total; kProtocol.
std::string encode(const Tuning& tuning);
Result<Tuning> decode_tuning(std::string_view word);

}  // namespace hvd
