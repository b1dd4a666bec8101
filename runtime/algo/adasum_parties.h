// AdasumParties is the interface of the group that combines its vectors by Adasum: the ranks of a node, nodes, or the
// ranks of an MPI job. It holds the three exchanges that the combination needs. combine_adasum() is the combination
// itself.
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
  // This party's index.
  [[nodiscard]] virtual std::size_t index() const = 0;
  // Receives every party's part of this party's share, one after the other.
  virtual Result<void> exchange(const std::uint8_t* packed, const ShareLayout& layout, std::uint8_t* received) = 0;
  // Sums the values over the parties, in place, in the order of the parties.
  virtual Result<void> sum(std::span<double> values) = 0;
  // Sends this party's share to all, and receives theirs.
  virtual Result<void> gather(std::uint8_t* packed, const ShareLayout& layout) = 0;

 protected:
  AdasumParties() = default;
  AdasumParties(const AdasumParties&) = default;
  AdasumParties& operator=(const AdasumParties&) = default;
};

// Adds values[] of all `count` parties, in the parties' order, on each of them. A ring would add in an order that
// depends on the position of a value in the list. gather(data, blocks) sends every party's block to all.
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

// The bytes of memory that combine_adasum() works in.
[[nodiscard]] std::size_t adasum_room(const ShareLayout& layout);
// `packed`, the beginning of that memory, holds this party's input; afterwards it holds the result, the same on all
// parties. Parties that stand together and have the same of these `groups` are averaged first; empty: none are.
Result<void> combine_adasum(AdasumParties& parties, const ShareLayout& layout, Dtype dtype, std::span<const int> groups,
                            std::uint8_t* packed);

}  // namespace hvd
