// Adasum is a reduction that adds vectors of different directions and averages vectors of the same direction. So the
// learning rate need not depend on the number of ranks (Maleki et al., "Scaling Distributed Training with Adaptive
// Summation", MLSys 2021). For two vectors it is
//
//   (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// For more vectors, it is that of the Adasum of the first 2^k (the largest power of two below their number) and the
// Adasum of the rest: a binary tree, for any number of vectors. A vector of zeros changes nothing.
//
// Whatever the tree, the result is a weighted sum of the vectors, and the weights follow from their inner products
// alone. So two passes over the data are enough, and no vector is rounded between two levels of the tree. Inner
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

// The number of inner products of `vectors` vectors with each other, each pair once: (i, j) with i <= j.
constexpr std::size_t products_of(std::size_t vectors) {
  return vectors * (vectors + 1) / 2;
}
constexpr std::size_t product_at(std::size_t vectors, std::size_t i, std::size_t j) {
  return i * vectors - i * (i + 1) / 2 + j;
}

// Adds the inner products: products[(i, j)] += vectors[i] . vectors[j]; `dtype` is a floating type. The order of
// additions depends only on `count`.
void add_products(std::span<const std::uint8_t* const> vectors, std::size_t count, Dtype dtype,
                  std::span<double> products);

// Returns the weight of each vector.
std::vector<double> adasum_weights(std::span<const double> products, std::size_t vectors);
// The same where vectors that stand together and have the same group are averaged first. Empty: none are.
std::vector<double> adasum_weights(std::span<const double> products, std::size_t vectors, std::span<const int> groups);

// Computes out[i] = sum of weights[v] * vectors[v][i]. A vector of weight 0 is left out, so that its infinities and
// NaNs do not count.
void weighted_sum(std::span<const std::uint8_t* const> vectors, std::span<const double> weights, std::size_t count,
                  Dtype dtype, std::uint8_t* out);

// ShareLayout divides tensors into one share per party, each tensor separately, so that a result does not depend on
// which tensors travel together. The packed form holds all shares of the first party, then those of the next.
class ShareLayout {
 public:
  ShareLayout(std::span<const MutableBytes> tensors, Dtype dtype, std::size_t parties);

  [[nodiscard]] std::size_t parties() const { return parties_.size(); }
  [[nodiscard]] std::size_t tensors() const { return tensor_bytes_.size(); }
  [[nodiscard]] std::size_t total_bytes() const { return parties_.back().end; }
  // The packed range of each party's shares.
  [[nodiscard]] std::span<const Range> of_parties() const { return parties_; }
  [[nodiscard]] std::size_t longest_share() const;
  // The bytes of the tensor that belong to the party.
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
