#include "runtime/algo/adasum_parties.h"

#include <vector>

namespace hvd {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// The memory holds the packed data, and after it each party's part of this party's share, with room for the longest
// share.
std::size_t adasum_room(const ShareLayout& layout) {
  return aligned(layout.total_bytes()) + layout.parties() * layout.longest_share();
}

Result<void> combine_adasum(AdasumParties& parties, const ShareLayout& layout, Dtype dtype, std::span<const int> groups,
                            std::uint8_t* packed) {
  std::uint8_t* received = packed + aligned(layout.total_bytes());
  HVD_TRY(parties.exchange(packed, layout, received));
  const std::size_t count = layout.parties();
  const Range& own = layout.of_parties()[parties.index()];
  const std::size_t each = products_of(count);
  std::vector<double> products(layout.tensors() * each, 0.0);
  std::vector<const std::uint8_t*> vectors(count);
  const auto for_each_tensor = [&](const auto& take) {
    std::size_t at = 0;
    for (std::size_t tensor = 0; tensor < layout.tensors(); ++tensor) {
      const std::size_t bytes = layout.share(tensor, parties.index()).size();
      for (std::size_t party = 0; party < count; ++party) {
        vectors[party] = received + party * own.size() + at;
      }
      take(std::span(products).subspan(tensor * each, each), bytes / size_of(dtype), packed + own.begin + at);
      at += bytes;
    }
  };
  for_each_tensor([&](std::span<double> of_tensor, std::size_t elements, std::uint8_t*) {
    add_products(vectors, elements, dtype, of_tensor);
  });
  HVD_TRY(parties.sum(products));
  for_each_tensor([&](std::span<double> of_tensor, std::size_t elements, std::uint8_t* out) {
    weighted_sum(vectors, adasum_weights(of_tensor, count, groups), elements, dtype, out);
  });
  return parties.gather(packed, layout);
}

}  // namespace hvd
