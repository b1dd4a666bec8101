// Tuning is the set of sizes at which the runtime changes its way of moving data on CPUs. `hvdrun bench --tune`
// measures them for a placement (core/tuning_table.h). The defaults were measured on the development machines.
//
// Ranks with different sizes would wait for data that another rank never writes. So a job has one Tuning, rank 0's,
// which all ranks receive when they connect (Mesh::join). Within a node no choice changes a result; between nodes it
// may change the order of a sum. Value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd {

struct Tuning {
  // The calling threads themselves (execute/quick_path.h) do an allreduce of at most this size, within a node ...
  std::size_t quick_bytes = 128U << 10U;
  // ... in one round if it is at most quick_whole_bytes and all ranks' data together at most quick_read_bytes;
  // otherwise in two.
  std::size_t quick_whole_bytes = 16U << 10U;
  std::size_t quick_read_bytes = 32U << 10U;
  // These are the same limits for a reduction with only one barrier, which the engine makes
  // (algo/node_collectives.cpp).
  std::size_t small_bytes = 4U << 10U;
  std::size_t small_read_bytes = 32U << 10U;
  // The size of a chunk that a rank stages at once. Measured on two cores with 1 to 64 MiB of float32, where each core
  // has a second-level cache of 1 MiB. With chunks of up to 256 KiB the data is still in the writer's own cache when
  // the other core reads it, which takes twice as long. Chunks of 1 MiB and more overfill the shared cache.
  std::size_t chunk_bytes = 512U << 10U;
  // The segment that moves between nodes at once, while the ranks of a node do their own part. Measured with 64 MiB on
  // a link of 1 Gbit/s. Smaller segments leave the links idle more often at segment ends; with larger ones the first
  // reduction and the last broadcast take longer.
  std::size_t segment_bytes = 4U << 20U;
  // Between nodes, data is received and reduced in pieces of this size. A piece is reduced while it is in the cache,
  // and while the kernel receives the next one. Measured between two hosts with 1 to 4 MiB: pieces of 256 KiB took 1.15
  // times as long, those of 64 KiB twice as long, because each piece costs a wait; with 4 MiB nothing overlaps.
  std::size_t wire_bytes = 512U << 10U;
  // Between nodes, an allreduce of at most this size goes in pairs: each of log2(nodes) exchanges sends all of the
  // data. A larger one goes along a ring, which sends the fewest bytes in 2 * (nodes - 1) steps. What pairs save in
  // steps grows with the nodes as what they send more does, so the limit is about the same for 4 and for 16 nodes.
  std::size_t pairs_bytes = 128U << 10U;
  // Tensors are fused up to this size, unless the user has set HOROVOD_FUSION_THRESHOLD. 0 turns fusion off.
  std::size_t fusion_bytes = 128U << 20U;

  friend bool operator==(const Tuning&, const Tuning&) = default;
};

// Data is cut into pieces at multiples of this size, which every element's size divides.
inline constexpr std::size_t kTuningGrain = 64;

struct TuningField {
  const char* name;
  std::size_t Tuning::* value;
  std::size_t least;
  std::size_t most;  // the size that buffers are made for
};

// All fields, in the order in which they are written.
std::span<const TuningField> tuning_fields();
// kInvalid names the field, its value, and what it should be.
Result<void> check(const Tuning& tuning);
// Formats it as "quick_bytes 131072, ...".
std::string text_of(const Tuning& tuning);

// The encoding in which ranks send it (base/bytes.h): u16 version | u64 for each field. Decoding is total; it returns
// kProtocol.
std::string encode(const Tuning& tuning);
Result<Tuning> decode_tuning(std::string_view word);

}  // namespace hvd
