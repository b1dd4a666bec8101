#include "runtime/algo/adasum.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <doctest/doctest.h>

#include "runtime/core/float16.h"

namespace hvd::adasum_test {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// By the definition.
Vector pair_of(const Vector& a, const Vector& b) {
  const double both = dot(a, b);
  const double of_a = dot(a, a) == 0.0 ? 1.0 : 1.0 - both / (2 * dot(a, a));
  const double of_b = dot(b, b) == 0.0 ? 1.0 : 1.0 - both / (2 * dot(b, b));
  Vector sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(of_a * a[i] + of_b * b[i]);
  }
  return sum;
}

std::vector<const std::uint8_t*> addresses(const std::vector<Vector>& vectors) {
  std::vector<const std::uint8_t*> all;
  for (const Vector& vector : vectors) {
    all.push_back(reinterpret_cast<const std::uint8_t*>(vector.data()));
  }
  return all;
}

std::vector<double> weights_of(const std::vector<Vector>& vectors) {
  std::vector<double> products(products_of(vectors.size()), 0.0);
  add_products(addresses(vectors), vectors.front().size(), Dtype::kFloat64, products);
  return adasum_weights(products, vectors.size());
}

Vector adasum_of(const std::vector<Vector>& vectors) {
  Vector out(vectors.front().size());
  weighted_sum(addresses(vectors), weights_of(vectors), out.size(), Dtype::kFloat64,
               reinterpret_cast<std::uint8_t*>(out.data()));
  return out;
}

Vector noise(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Vector values(count);
  for (double& value : values) {
    value = normal(random);
  }
  return values;
}

void check_close(const Vector& a, const Vector& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(std::fabs(a[i] - b[i]) <= tolerance);
  }
}

}  // namespace

TEST_CASE("the vectors of a group count as their average") {
  const std::vector<Vector> vectors = {noise(1, 50), noise(2, 50), noise(3, 50),
                                       noise(4, 50), noise(5, 50), noise(6, 50)};
  const std::vector<int> groups = {4, 4, 0, 7, 7, 7};
  const auto average_of = [&](std::size_t begin, std::size_t end) {
    Vector sum(50, 0.0);
    for (std::size_t v = begin; v < end; ++v) {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += vectors[v][i] / static_cast<double>(end - begin);
      }
    }
    return sum;
  };
  std::vector<double> products(products_of(vectors.size()), 0.0);
  add_products(addresses(vectors), 50, Dtype::kFloat64, products);
  const auto combined = [&](std::span<const int> of) {
    Vector out(50);
    weighted_sum(addresses(vectors), adasum_weights(products, vectors.size(), of), 50, Dtype::kFloat64,
                 reinterpret_cast<std::uint8_t*>(out.data()));
    return out;
  };
  check_close(combined(groups), adasum_of({average_of(0, 2), average_of(2, 3), average_of(3, 6)}), 1e-12);
  check_close(combined(std::vector<int>(6, 0)), average_of(0, 6), 1e-12);
  check_close(combined({}), adasum_of(vectors), 0.0);
}

TEST_CASE("each pair of vectors has a place among the products, and no other pair has it") {
  for (const std::size_t n : {1U, 2U, 5U, 8U}) {
    std::vector<int> uses(products_of(n), 0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i; j < n; ++j) {
        ++uses[product_at(n, i, j)];
      }
    }
    CHECK(uses == std::vector<int>(products_of(n), 1));
  }
}

TEST_CASE("what is orthogonal is added, what is equal is averaged") {
  check_close(adasum_of({{1, 0}, {0, 2}}), {1, 2}, 0.0);
  check_close(adasum_of({{3, -1}, {3, -1}}), {3, -1}, 0.0);
  check_close(adasum_of({{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}), {1, 1, 1, 1}, 0.0);
  check_close(adasum_of({{2}, {2}, {2}, {2}, {2}}), {2}, 1e-15);
}

TEST_CASE("zeros change nothing, wherever they are") {
  check_close(adasum_of({{0, 0}, {0, 0}}), {0, 0}, 0.0);
  check_close(adasum_of({{0, 0}, {5, 7}}), {5, 7}, 0.0);
  check_close(adasum_of({{5, 7}, {0, 0}, {0, 0}}), {5, 7}, 0.0);
  const Vector pair = adasum_of({{1, 2}, {3, -1}});
  check_close(adasum_of({{1, 2}, {3, -1}, {0, 0}, {0, 0}}), pair, 1e-15);
}

TEST_CASE("of any number of vectors it is the tree of pairs that the definition makes") {
  std::vector<Vector> v;
  for (unsigned seed = 0; seed < 8; ++seed) {
    v.push_back(noise(seed, 1000));
  }
  const Vector four = pair_of(pair_of(v[0], v[1]), pair_of(v[2], v[3]));
  check_close(adasum_of({v[0], v[1]}), pair_of(v[0], v[1]), 1e-12);
  check_close(adasum_of({v[0], v[1], v[2]}), pair_of(pair_of(v[0], v[1]), v[2]), 1e-12);
  check_close(adasum_of({v[0], v[1], v[2], v[3]}), four, 1e-12);
  check_close(adasum_of({v[0], v[1], v[2], v[3], v[4], v[5], v[6]}), pair_of(four, pair_of(pair_of(v[4], v[5]), v[6])),
              1e-12);
  check_close(adasum_of(v), pair_of(four, pair_of(pair_of(v[4], v[5]), pair_of(v[6], v[7]))), 1e-12);
}

TEST_CASE("vectors that cancel each other but for noise count as zero, and do not blow up") {
  const Vector a = noise(1, 100);
  Vector b = a;
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = -b[i] * (1.0 + (i % 2 == 0 ? 1e-15 : -1e-15));
  }
  const Vector c = noise(2, 100);
  check_close(adasum_of({a, b, c}), c, 1e-9);
  check_close(adasum_of({a, b, b, a}), Vector(100, 0.0), 1e-9);
}

TEST_CASE("what is no number makes the result none") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf}) {
    for (const double value : adasum_of({{1, 2}, {bad, 1}})) {
      CHECK(std::isnan(value));
    }
  }
}

TEST_CASE("narrow types are rounded once, from float64") {
  // 1 + 2^-11 + 2^-40 is above the middle of two float16; rounded to float32 first it would be the middle, and even.
  const float small = 1.0F;
  const double weights[] = {1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)};
  const std::uint16_t one = float_to_float16(small);
  const std::uint8_t* vectors[] = {reinterpret_cast<const std::uint8_t*>(&one)};
  std::uint16_t out = 0;
  weighted_sum(vectors, weights, 1, Dtype::kFloat16, reinterpret_cast<std::uint8_t*>(&out));
  CHECK(float16_to_float(out) == 1.0F + std::ldexp(1.0F, -10));
  const std::uint16_t brain = float_to_bfloat16(small);
  const std::uint8_t* brains[] = {reinterpret_cast<const std::uint8_t*>(&brain)};
  const double above[] = {-(1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40))};
  weighted_sum(brains, above, 1, Dtype::kBfloat16, reinterpret_cast<std::uint8_t*>(&out));
  CHECK(bfloat16_to_float(out) == -(1.0F + std::ldexp(1.0F, -7)));
}

TEST_CASE("shares of tensors are packed by party, and each tensor is cut by itself") {
  std::vector<std::uint8_t> a(1000);
  std::vector<std::uint8_t> b(8);
  std::vector<std::uint8_t> c(130);
  std::iota(a.begin(), a.end(), std::uint8_t{1});
  std::iota(b.begin(), b.end(), std::uint8_t{100});
  std::iota(c.begin(), c.end(), std::uint8_t{50});
  const std::vector<MutableBytes> tensors = {a, b, c};
  for (const std::size_t parties : {1U, 2U, 3U, 7U, 20U}) {
    const ShareLayout layout(tensors, Dtype::kFloat16, parties);
    CHECK(layout.total_bytes() == 1138);
    CHECK(layout.of_parties().front().begin == 0);
    const ShareLayout alone(std::span<const MutableBytes>(tensors).subspan(2), Dtype::kFloat16, parties);
    for (std::size_t party = 0; party < parties; ++party) {
      CHECK(layout.share(2, party).begin == alone.share(0, party).begin);
      CHECK(layout.share(2, party).end == alone.share(0, party).end);
    }
    std::vector<std::uint8_t> packed(layout.total_bytes());
    layout.pack(tensors, packed.data());
    std::vector<std::uint8_t> a2(a.size());
    std::vector<std::uint8_t> b2(b.size());
    std::vector<std::uint8_t> c2(c.size());
    layout.unpack(packed.data(), std::vector<MutableBytes>{a2, b2, c2});
    CHECK(a == a2);
    CHECK(b == b2);
    CHECK(c == c2);
  }
}

}  // namespace hvd::adasum_test
