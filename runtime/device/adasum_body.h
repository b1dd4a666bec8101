// The work of one GPU thread for Adasum of two vectors (algo/adasum.h defines that). It computes the inner products in
// float64, added in an order that depends only on the number of elements, and then the weighted sum, where each element
// is rounded once. The source is compiled for GPUs (kernels.cu), for tests on the host, and for the fake driver; the
// results are the same.
//
// Value types and pure functions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "runtime/device/move_body.h"

namespace hvd {

// These are fixed, whatever the GPU, so that every GPU adds in the same order.
inline constexpr unsigned kProductBlocks = 256;
inline constexpr unsigned kProductThreads = 256;
static_assert(kProductBlocks == kProductThreads);  // each thread of the second launch takes one partial sum

// The inner products of two vectors: a.a, a.b and b.b.
struct Products {
  double aa = 0.0;
  double ab = 0.0;
  double bb = 0.0;
  HVD_HD void add(const Products& other) {
    aa += other.aa;
    ab += other.ab;
    bb += other.bb;
  }
};

struct AdasumWeights {
  double a = 1.0;
  double b = 1.0;
};

struct AdasumPair {
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;  // may be a or b
  std::uint64_t count = 0;
  Products* partial = nullptr;  // kProductBlocks; null: the sum has these weights, whatever the vectors are
  AdasumWeights fixed{};
};

template <typename Element>
HVD_HD double element_of(const void* data, std::uint64_t at) {
  return static_cast<double>(Element::load(static_cast<const typename Element::Stored*>(data)[at]));
}

// The part of one thread: one element of every kProductBlocks * kProductThreads.
template <typename Element>
HVD_HD Products products_of_thread(const AdasumPair& pair, unsigned block, unsigned thread) {
  Products sum;
  const std::uint64_t stride = std::uint64_t{kProductBlocks} * kProductThreads;
  for (std::uint64_t i = std::uint64_t{block} * kProductThreads + thread; i < pair.count; i += stride) {
    const double a = element_of<Element>(pair.a, i);
    const double b = element_of<Element>(pair.b, i);
    sum.aa = fma(a, a, sum.aa);
    sum.ab = fma(a, b, sum.ab);
    sum.bb = fma(b, b, sum.bb);
  }
  return sum;
}

// A vector of zeros changes nothing; a NaN makes the result NaN too.
HVD_HD AdasumWeights weights_of(const Products& sum) {
  AdasumWeights weights;
  weights.a = sum.aa == 0.0 ? 1.0 : 1.0 - sum.ab / (2.0 * sum.aa);
  weights.b = sum.bb == 0.0 ? 1.0 : 1.0 - sum.ab / (2.0 * sum.bb);
  return weights;
}

// Rounds to the element's type. It goes through a float32 that is rounded to odd when inexact, so that the two
// roundings give the same result as one.
template <typename Element>
HVD_HD typename Element::Stored rounded(double value) {
  const float nearest = static_cast<float>(value);
  float odd = nearest;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &nearest, sizeof(bits));
  const bool is_finite = (bits & 0x7F800000U) != 0x7F800000U;
  if (static_cast<double>(nearest) != value && is_finite && (bits & 1U) == 0) {
    bits += fabs(static_cast<double>(nearest)) > fabs(value) ? ~std::uint32_t{0} : 1U;
    std::memcpy(&odd, &bits, sizeof(odd));
  }
  return Element::store(odd);
}
template <>
HVD_HD float rounded<AsItself<float>>(double value) {
  return static_cast<float>(value);
}
template <>
HVD_HD double rounded<AsItself<double>>(double value) {
  return value;
}

template <typename Element>
HVD_HD void combine_element(const AdasumPair& pair, const AdasumWeights& weights, std::uint64_t at) {
  const double a = element_of<Element>(pair.a, at);
  const double b = element_of<Element>(pair.b, at);
  // The expression is written with fma, since compilers differ in which operations they fuse.
  static_cast<typename Element::Stored*>(pair.out)[at] = rounded<Element>(fma(weights.a, a, weights.b * b));
}

// X(suffix, Element) defines hvd_adasum_products_<suffix> and hvd_adasum_combine_<suffix>.
#define HVD_ADASUM_KERNELS(X) \
  X(float16, AsFloat16)       \
  X(bfloat16, AsBfloat16)     \
  X(float32, AsItself<float>) \
  X(float64, AsItself<double>)

}  // namespace hvd
