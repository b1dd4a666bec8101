// GenerationPlace says where a process stands in one generation of an elastic job: its rank, and its node among those
// that are left. A process keeps its number as hvdrun started it, and has another place in each generation. Value type.
#pragma once

#include <cstdint>

#include "runtime/base/bytes.h"

namespace hvd {

struct GenerationPlace {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 1;
  std::int32_t cross_rank = 0;
  std::int32_t cross_size = 1;
  std::int32_t node_index = 0;
  std::int32_t node_count = 1;
  // The local rank that the program sees, and chooses a GPU by: where it can, the one that it was started with, since
  // the others of its node keep theirs.
  std::int32_t slot = 0;

  static void fields(auto& m, auto& walk) {
    walk(m.rank, m.size, m.local_rank, m.local_size, m.cross_rank, m.cross_size, m.node_index, m.node_count, m.slot);
  }

  [[nodiscard]] bool is_valid() const {
    const auto is_within = [](std::int32_t index, std::int32_t count) { return index >= 0 && index < count; };
    return is_within(rank, size) && is_within(local_rank, local_size) && is_within(cross_rank, cross_size) &&
           is_within(node_index, node_count) && slot >= 0;
  }

  void write(ByteWriter& out) const {
    out.i32(rank).i32(size).i32(local_rank).i32(local_size);
    out.i32(cross_rank).i32(cross_size).i32(node_index).i32(node_count).i32(slot);
  }
  // What was read is valid only if is_valid() says so and the reader is ok().
  static GenerationPlace read(ByteReader& in) {
    GenerationPlace place;
    for (std::int32_t* number : {&place.rank, &place.size, &place.local_rank, &place.local_size, &place.cross_rank,
                                 &place.cross_size, &place.node_index, &place.node_count, &place.slot}) {
      *number = in.i32();
    }
    return place;
  }
};

}  // namespace hvd
