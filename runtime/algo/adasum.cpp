#include "runtime/algo/adasum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/core/float16.h"

// This file is built with -O3, as reduce_kernels.cpp is.
namespace hvd {
namespace {

// The number of elements of each vector that are handled together: eight such vectors still fit into a core's
// first-level cache.
constexpr std::size_t kBlock = 256;
// Sums run in this many independent lanes, which the compiler can compute in parallel.
constexpr std::size_t kLanes = 4;
// The inner products give the square of a sum of vectors that nearly cancel each other only down to this fraction of
// their own size (in float64). Below that its direction is noise, and the sum counts as zero, which it nearly is.
constexpr double kNoise = 1e-12;

// Shares end at multiples of this, so that no two parties write to the same cache line of an output.
constexpr std::size_t kGrainBytes = 64;

template <typename T, typename Convert>
void load(const std::uint8_t* from, std::size_t begin, std::size_t count, double* to, const Convert& convert) {
  const auto* values = reinterpret_cast<const T*>(from) + begin;
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<double>(convert(values[i]));
  }
}

template <typename T, typename Convert>
void store(const double* from, std::size_t count, std::uint8_t* to, std::size_t begin, const Convert& convert) {
  auto* values = reinterpret_cast<T*>(to) + begin;
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = convert(from[i]);
  }
}

void load(const std::uint8_t* from, std::size_t begin, std::size_t count, Dtype dtype, double* to) {
  switch (dtype) {
    case Dtype::kFloat16:
      return load<std::uint16_t>(from, begin, count, to, float16_to_float);
    case Dtype::kBfloat16:
      return load<std::uint16_t>(from, begin, count, to, bfloat16_to_float);
    case Dtype::kFloat32:
      return load<float>(from, begin, count, to, [](float value) { return value; });
    case Dtype::kFloat64:
      return load<double>(from, begin, count, to, [](double value) { return value; });
    default:
      HVD_CHECK(is_floating(dtype));
  }
}

// Rounds to float32; if the result is inexact, to the neighbour with an odd last bit. Rounding that result again then
// gives the same as rounding the float64 directly.
float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest) || (bits & 1U) != 0) {
    return nearest;
  }
  const bool is_larger = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  return std::bit_cast<float>(is_larger ? bits - 1 : bits + 1);
}

void store(const double* from, std::size_t count, Dtype dtype, std::uint8_t* to, std::size_t begin) {
  switch (dtype) {
    case Dtype::kFloat16:
      return store<std::uint16_t>(from, count, to, begin, [](double v) { return float_to_float16(to_odd(v)); });
    case Dtype::kBfloat16:
      return store<std::uint16_t>(from, count, to, begin, [](double v) { return float_to_bfloat16(to_odd(v)); });
    case Dtype::kFloat32:
      return store<float>(from, count, to, begin, [](double v) { return static_cast<float>(v); });
    case Dtype::kFloat64:
      return store<double>(from, count, to, begin, [](double v) { return v; });
    default:
      HVD_CHECK(is_floating(dtype));
  }
}

double product(const double* a, const double* b, std::size_t count) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (; i < count; ++i) {
    lanes[0] += a[i] * b[i];
  }
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Combination is the Adasum of some vectors, as the weight of each vector; 0 for the others.
class Combination {
 public:
  Combination(std::span<const double> products, std::size_t vectors) : products_(products), weights_(vectors, 0.0) {}

  void combine(std::size_t begin, std::size_t end) {
    if (end - begin == 1) {
      weights_[begin] = 1.0;
      return;
    }
    const std::size_t middle = begin + std::bit_floor(end - begin - 1);
    combine(begin, middle);
    combine(middle, end);
    const Range a{begin, middle};
    const Range b{middle, end};
    const double both = times(a, b).value;
    scale(a, both);
    scale(b, both);
  }
  [[nodiscard]] std::vector<double> weights() && { return std::move(weights_); }

 private:
  struct Product {
    double value = 0.0;
    double magnitude = 0.0;  // sum of the absolute terms
  };
  [[nodiscard]] Product times(Range a, Range b) const {
    Product sum;
    for (std::size_t i = a.begin; i < a.end; ++i) {
      for (std::size_t j = b.begin; j < b.end; ++j) {
        const std::size_t at = product_at(weights_.size(), std::min(i, j), std::max(i, j));
        const double term = weights_[i] * weights_[j] * products_[at];
        sum.value += term;
        sum.magnitude += std::fabs(term);
      }
    }
    return sum;
  }
  void scale(Range side, double both) {
    const Product square = times(side, side);
    // A NaN is scaled too, so that it makes the result NaN.
    if (std::isfinite(square.magnitude) && square.value <= kNoise * square.magnitude) {
      return;
    }
    const double factor = 1.0 - both / (2.0 * square.value);
    for (std::size_t i = side.begin; i < side.end; ++i) {
      weights_[i] *= factor;
    }
  }

  std::span<const double> products_;
  std::vector<double> weights_;
};

}  // namespace

void add_products(std::span<const std::uint8_t* const> vectors, std::size_t count, Dtype dtype,
                  std::span<double> products) {
  std::vector<double> blocks(vectors.size() * kBlock);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      load(vectors[v], begin, length, dtype, blocks.data() + v * kBlock);
    }
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      for (std::size_t j = i; j < vectors.size(); ++j) {
        products[product_at(vectors.size(), i, j)] +=
            product(blocks.data() + i * kBlock, blocks.data() + j * kBlock, length);
      }
    }
  }
}

std::vector<double> adasum_weights(std::span<const double> products, std::size_t vectors) {
  HVD_CHECK(vectors > 0 && products.size() == products_of(vectors));
  Combination all(products, vectors);
  all.combine(0, vectors);
  return std::move(all).weights();
}

std::vector<double> adasum_weights(std::span<const double> products, std::size_t vectors, std::span<const int> groups) {
  if (groups.empty()) {
    return adasum_weights(products, vectors);
  }
  HVD_CHECK(vectors > 0 && groups.size() == vectors && products.size() == products_of(vectors));
  std::vector<Range> members;  // of each group
  for (std::size_t v = 0; v < vectors; ++v) {
    if (v == 0 || groups[v] != groups[v - 1]) {
      members.push_back(Range{v, v});
    }
    members.back().end = v + 1;
  }
  std::vector<double> of_averages(products_of(members.size()), 0.0);
  for (std::size_t a = 0; a < members.size(); ++a) {
    for (std::size_t b = a; b < members.size(); ++b) {
      double& product = of_averages[product_at(members.size(), a, b)];
      for (std::size_t i = members[a].begin; i < members[a].end; ++i) {
        for (std::size_t j = members[b].begin; j < members[b].end; ++j) {
          product += products[product_at(vectors, std::min(i, j), std::max(i, j))];
        }
      }
      product /= static_cast<double>(members[a].size() * members[b].size());
    }
  }
  const std::vector<double> of_groups = adasum_weights(of_averages, members.size());
  std::vector<double> weights;
  for (std::size_t group = 0; group < members.size(); ++group) {
    const std::size_t size = members[group].size();
    weights.insert(weights.end(), size, of_groups[group] / static_cast<double>(size));
  }
  return weights;
}

void weighted_sum(std::span<const std::uint8_t* const> vectors, std::span<const double> weights, std::size_t count,
                  Dtype dtype, std::uint8_t* out) {
  std::array<double, kBlock> block{};
  std::array<double, kBlock> sum{};
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    sum.fill(0.0);
    for (std::size_t v = 0; v < vectors.size(); ++v) {
      if (weights[v] == 0.0) {
        continue;
      }
      load(vectors[v], begin, length, dtype, block.data());
      for (std::size_t i = 0; i < length; ++i) {
        sum[i] += weights[v] * block[i];
      }
    }
    store(sum.data(), length, dtype, out, begin);
  }
}

ShareLayout::ShareLayout(std::span<const MutableBytes> tensors, Dtype dtype, std::size_t parties) {
  HVD_CHECK(parties > 0 && kGrainBytes % size_of(dtype) == 0);
  for (const MutableBytes& tensor : tensors) {
    tensor_bytes_.push_back(tensor.size());
  }
  std::size_t at = 0;
  for (std::size_t party = 0; party < parties; ++party) {
    const std::size_t begin = at;
    for (std::size_t tensor = 0; tensor < tensor_bytes_.size(); ++tensor) {
      at += split(tensor_bytes_[tensor], parties, party, kGrainBytes).size();
    }
    parties_.push_back(Range{begin, at});
  }
}

std::size_t ShareLayout::longest_share() const {
  std::size_t longest = 0;
  for (const Range& share : parties_) {
    longest = std::max(longest, share.size());
  }
  return longest;
}

Range ShareLayout::share(std::size_t tensor, std::size_t party) const {
  return split(tensor_bytes_[tensor], parties_.size(), party, kGrainBytes);
}

template <typename Take>
void ShareLayout::for_each_share(const Take& take) const {
  std::size_t at = 0;
  for (std::size_t party = 0; party < parties_.size(); ++party) {
    for (std::size_t tensor = 0; tensor < tensor_bytes_.size(); ++tensor) {
      const Range range = share(tensor, party);
      if (range.size() != 0) {
        take(tensor, range, at);
      }
      at += range.size();
    }
  }
}

void ShareLayout::pack(std::span<const MutableBytes> tensors, std::uint8_t* packed) const {
  for_each_share([&](std::size_t tensor, Range range, std::size_t at) {
    std::memcpy(packed + at, tensors[tensor].data() + range.begin, range.size());
  });
}

void ShareLayout::unpack(const std::uint8_t* packed, std::span<const MutableBytes> tensors) const {
  for_each_share([&](std::size_t tensor, Range range, std::size_t at) {
    std::memcpy(tensors[tensor].data() + range.begin, packed + at, range.size());
  });
}

}  // namespace hvd
