// The messages between ranks and coordinator about tensors that all ranks of a process set know. Each tensor costs one
// bit, at the position that the coordinator has assigned to it, instead of a request. These frames complement those of
// message.h and use their codec:
//
//   rank -> coordinator   Bits      i32 process set, u64 changes, bits      (this rank is ready for these positions)
//   coordinator -> rank   Hits      i32 process set, u64 fusion bytes, u8 fuses groups, bits
//                                                                           (all ranks do these now)
//   coordinator -> rank   Remember  i32 process set, u32 n, n x (u32 position, name, i32 priority, u8 is shared,
//                                   u32 m, m x i64 first dims)              (the positions' content from now on)
//
//   bits      u32 n, n x u64: position p is bit p % 64 of word p / 64; n > 0, and the last word is not 0
//
// A position means what the last Remember for it said. A rank may send a bit before it has received a change of the
// position. `changes` is the number of Remember items that the rank has taken in for the set. From it the coordinator
// recognises an outdated bit and skips it; the rank asks again by message (Request::is_again) when it receives the
// change. For Hits, order and fusion follow from the bits (see ResponseCache::plan), so that all ranks come to the same
// plan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/controller/position_bits.h"

namespace hvd {

namespace control_wire {

inline constexpr std::uint16_t kBits = 7;
inline constexpr std::uint16_t kHits = 8;
inline constexpr std::uint16_t kRemember = 9;

// The upper limit of HOROVOD_CACHE_CAPACITY.
inline constexpr int kMaxPositions = 1 << 16;

}  // namespace control_wire

struct KnownBits {
  std::int32_t process_set = 0;
  std::uint64_t changes = 0;
  PositionBits bits;
};

struct KnownHits {
  std::int32_t process_set = 0;
  std::uint64_t fusion_bytes = 0;
  bool fuses_groups = true;
  PositionBits bits;
};

// Remembered is the content of a position: the request with which all ranks wait under this name (a group's by its
// first).
struct Remembered {
  std::int32_t position = 0;
  std::string name;
  std::int32_t priority = 0;               // the one that counts for all ranks
  bool is_shared = false;                  // as in Response
  std::vector<std::int64_t> first_dims{};  // allgather: as in Response

  bool operator==(const Remembered&) const = default;
};

struct RememberedBatch {
  std::int32_t process_set = 0;
  std::vector<Remembered> items;
};

// Each appends one frame, or none if there is nothing to send (Remembered: as many as its size needs). Nothing is
// allocated beyond `out`.
void append_bits(std::string& out, const KnownBits& known);
void append_hits(std::string& out, const KnownHits& hits);
void append_remembered(std::string& out, std::int32_t process_set, std::span<const Remembered> items);

// Decoders of the frames' bodies. Total: any input is decoded or refused with kProtocol. They write into the caller's
// object, so that its memory is used again; after an error its content is undefined.
Result<void> decode_bits(std::string_view body, KnownBits& into);
Result<void> decode_hits(std::string_view body, KnownHits& into);
Result<RememberedBatch> decode_remembered(std::string_view body);

}  // namespace hvd
