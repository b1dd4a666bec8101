// Adasum: a sum that adds what ranks bring in different directions and averages what they bring in the same one, so
// that a learning rate need not know how many ranks there are (Maleki et al., "Scaling Distributed Training with
// Adaptive Summation", MLSys 2021). Of two vectors it is
//
//   (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// and of more that of their first 2^k (the largest such below their number) and of the rest: a binary tree, for any
// number of vectors. A vector of zeros changes nothing.
//
// Whatever the tree, the result is a weighted sum of the vectors, and the weights follow from their inner products
// alone. So two passes over the data are enough, and no vector between two levels of the tree is ever rounded: inner
// products, weights and sums are float64, and each element is rounded once.
//
// Pure functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algo/schedule.h"
#include "runtime/base/bytes.h"
#include "runtime/core/dtype.h"

namespace hvd {

// The inner products of `vectors` vectors with each other, each pair once: (i, j) with i <= j.
constexpr std::size_t products_of(std::size_t vectors) {
  return vectors * (vectors + 1) / 2;
}
constexpr std::size_t product_at(std::size_t vectors, std::size_t i, std::size_t j) {
  return i * vectors - i * (i + 1) / 2 + j;
}

// products[(i, j)] += vectors[i] . vectors[j]; `dtype` is a floating one. The order of additions depends on `count`
// only.
void add_products(std::span<const std::uint8_t* const> vectors, std::size_t count, Dtype dtype,
                  std::span<double> products);

// By which each vector counts.
std::vector<double> adasum_weights(std::span<const double> products, std::size_t vectors);

// out[i] = sum of weights[v] * vectors[v][i]. A weight of 0 is no contribution at all.
void weighted_sum(std::span<const std::uint8_t* const> vectors, std::span<const double> weights, std::size_t count,
                  Dtype dtype, std::uint8_t* out);

// Tensors cut into a share for each of several parties, every tensor by itself, so that a result does not depend on
// which others it travels with; and packed: all of the first party's shares, then the next one's.
class ShareLayout {
 public:
  ShareLayout(std::span<const MutableBytes> tensors, Dtype dtype, std::size_t parties);

  [[nodiscard]] std::size_t parties() const { return parties_.size(); }
  [[nodiscard]] std::size_t tensors() const { return tensor_bytes_.size(); }
  [[nodiscard]] std::size_t total_bytes() const { return parties_.back().end; }
  // Where each party's shares are, packed.
  [[nodiscard]] std::span<const Range> of_parties() const { return parties_; }
  [[nodiscard]] std::size_t longest_share() const;
  // Bytes of the tensor that are the party's.
  [[nodiscard]] Range share(std::size_t tensor, std::size_t party) const;

  void pack(std::span<const MutableBytes> tensors, std::uint8_t* packed) const;
  void unpack(const std::uint8_t* packed, std::span<const MutableBytes> tensors) const;

 private:
  template <typename Take>
  void for_each_share(const Take& take) const;

  std::vector<std::size_t> tensor_bytes_;
  std::vector<Range> parties_;
};

}  // namespace hvd
