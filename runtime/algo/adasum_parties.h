// AdasumParties: those who combine their vectors by Adasum, as ranks of a node, nodes or ranks of an MPI job do: what
// they must be able to do for each other, and the combination made of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algo/adasum.h"
#include "runtime/base/result.h"

namespace hvd {

class AdasumParties {
 public:
  virtual ~AdasumParties() = default;
  // Which of them this is.
  [[nodiscard]] virtual std::size_t index() const = 0;
  // Every party's part of this one's share, one after the other.
  virtual Result<void> exchange(const std::uint8_t* packed, const ShareLayout& layout, std::uint8_t* received) = 0;
  // In place, in the order of the parties.
  virtual Result<void> sum(std::span<double> values) = 0;
  // From the own share to all of them.
  virtual Result<void> gather(std::uint8_t* packed, const ShareLayout& layout) = 0;

 protected:
  AdasumParties() = default;
  AdasumParties(const AdasumParties&) = default;
  AdasumParties& operator=(const AdasumParties&) = default;
};

// values[] of all `count` parties, added in their order by each of them: a ring would add in an order that depends on
// where in the list a value is. gather(data, blocks): every party's block to all.
template <typename Gather>
Result<void> sum_in_order(std::size_t index, std::size_t count, std::span<double> values, const Gather& gather) {
  std::vector<double> all(count * values.size());
  std::vector<Range> blocks;
  for (std::size_t party = 0; party < count; ++party) {
    blocks.push_back(Range{party * values.size_bytes(), (party + 1) * values.size_bytes()});
  }
  std::copy(values.begin(), values.end(), all.data() + index * values.size());
  HVD_TRY(gather(all.data(), blocks));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = all[i];
    for (std::size_t party = 1; party < count; ++party) {
      values[i] += all[party * values.size() + i];
    }
  }
  return {};
}

// Bytes of memory that combine_adasum() works in.
[[nodiscard]] std::size_t adasum_room(const ShareLayout& layout);
// `packed`, the beginning of that room, holds what this party brings; afterwards the result, of all parties alike.
Result<void> combine_adasum(AdasumParties& parties, const ShareLayout& layout, Dtype dtype, std::uint8_t* packed);

}  // namespace hvd
