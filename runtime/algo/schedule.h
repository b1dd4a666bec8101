// Schedule: who does which part when, as arithmetic: (rank, size, step) -> range and peer. Pure; the algorithms follow
// it and the tests check it without any link.
#pragma once

#include <cstddef>

namespace hvd {

// Of something with `total` units: the units [begin, end).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

// Part `part` of `parts` of `total` units, in order and without gaps: every part is a multiple of `grain` units but the
// last that is not empty, and parts differ by one grain at most.
constexpr Range split(std::size_t total, std::size_t parts, std::size_t part, std::size_t grain = 1) {
  const std::size_t grains = (total + grain - 1) / grain;
  const std::size_t each = grains / parts;
  const std::size_t longer = grains % parts;  // the first ones have one grain more
  const auto begin_of = [&](std::size_t p) {
    const std::size_t at = (p * each + (p < longer ? p : longer)) * grain;
    return at < total ? at : total;
  };
  return Range{begin_of(part), begin_of(part + 1)};
}

// Something of size_bytes in chunks of chunk_bytes: how many there are, and which bytes are in each.
constexpr std::size_t chunks_for(std::size_t size_bytes, std::size_t chunk_bytes) {
  return (size_bytes + chunk_bytes - 1) / chunk_bytes;
}
constexpr Range chunk_of(std::size_t size_bytes, std::size_t chunk_bytes, std::size_t chunk) {
  const std::size_t begin = chunk * chunk_bytes;
  return Range{begin < size_bytes ? begin : size_bytes,
               begin + chunk_bytes < size_bytes ? begin + chunk_bytes : size_bytes};
}

// The neighbours of `index` in a ring of `count`, and any distance on.
constexpr int ring_next(int index, int count, int distance = 1) {
  return (index + distance) % count;
}
constexpr int ring_previous(int index, int count, int distance = 1) {
  return (index + count - distance % count) % count;
}

// Ring reduce-scatter in count-1 steps: at `step`, `index` sends this part to its next and reduces ring_recv_part from
// its previous one into its own. Afterwards it holds part ring_next(index) complete. The allgather that follows is the
// same walk one part later.
constexpr int ring_send_part(int index, int count, int step) {
  return ring_previous(index, count, step);
}
constexpr int ring_recv_part(int index, int count, int step) {
  return ring_previous(index, count, step + 1);
}

}  // namespace hvd
