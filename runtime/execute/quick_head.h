// The head of a quick operation: the bytes by which ranks tell which operation they have come for. Ranks agree if all
// bytes of their heads are the same. The head precedes the data in a message or a box. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/core/shape.h"
#include "runtime/execute/quick_path.h"
#include "runtime/link/shm_ring.h"

namespace hvd {

inline constexpr std::size_t kQuickHeadFields = 40;
inline constexpr std::size_t kMaxQuickHead =
    kQuickHeadFields + kMaxDims * sizeof(std::int64_t) + QuickPath::kMaxNameBytes;

inline std::size_t quick_head_bytes(const QuickOp& op) {
  return kQuickHeadFields + op.shape.size_bytes() + op.name.size();
}
// The offset of the data in a box, after the head.
inline std::size_t quick_data_at(const QuickOp& op) {
  return (quick_head_bytes(op) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}
// `round` tells the rounds of one operation apart.
void write_quick_head(std::uint8_t* to, const QuickOp& op, std::uint8_t round);

}  // namespace hvd
