// Adasum on every placement, against a reference in float64 computed here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "runtime/core/float16.h"
#include "tests/multi/thread_job.h"
#include "tests/support/sanitizers.h"

namespace hvd::adasum_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

namespace {

using Vector = std::vector<double>;
using Buffer = std::vector<std::uint8_t>;

const std::vector<Nodes> kPlacements = {{1}, {2},    {1, 1}, {3}, {1, 2},    {1, 1, 1}, {4},
                                        {7}, {2, 2}, {3, 1}, {8}, {1, 2, 4}, {4, 4},    {1, 1, 1, 1, 1, 1, 1, 1}};
const std::vector<std::size_t> kSizes = {0, 1, 7, 1024, 5000};
const std::vector<Dtype> kDtypes = {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64};

double rounded(double value, Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return float16_to_float(float_to_float16(static_cast<float>(value)));
    case Dtype::kBfloat16:
      return bfloat16_to_float(float_to_bfloat16(static_cast<float>(value)));
    case Dtype::kFloat32:
      return static_cast<float>(value);
    default:
      return value;
  }
}

// How far a value may be from the exact one, as a part of the largest there is.
double tolerance_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-9;
    case Dtype::kBfloat16:
      return 0x1p-6;
    case Dtype::kFloat32:
      return 0x1p-22;
    default:
      return 1e-13;
  }
}

// What a rank has of tensor `tensor`: gradients of ranks are alike to some extent.
Vector values_of(int rank, std::size_t tensor, std::size_t count, Dtype dtype) {
  std::mt19937 common(static_cast<unsigned>(tensor));
  std::mt19937 own(static_cast<unsigned>(1000 * (rank + 1)) + static_cast<unsigned>(tensor));
  std::normal_distribution<double> normal;
  Vector values(count);
  for (double& value : values) {
    value = rounded(normal(common) + normal(own) * (1 + rank), dtype);
  }
  return values;
}

Vector pair_of(const Vector& a, const Vector& b) {
  double both = 0;
  double of_a = 0;
  double of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += a[i] * b[i];
    of_a += a[i] * a[i];
    of_b += b[i] * b[i];
  }
  Vector sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum[i] = (of_a == 0 ? 1.0 : 1.0 - both / (2 * of_a)) * a[i] + (of_b == 0 ? 1.0 : 1.0 - both / (2 * of_b)) * b[i];
  }
  return sum;
}

Vector tree_of(const std::vector<Vector>& vectors, std::size_t begin, std::size_t end) {
  if (end - begin == 1) {
    return vectors[begin];
  }
  std::size_t first = 1;
  while (first * 2 < end - begin) {
    first *= 2;
  }
  return pair_of(tree_of(vectors, begin, begin + first), tree_of(vectors, begin + first, end));
}

// First the ranks of each node, then the nodes.
Vector reference(const Nodes& nodes, std::size_t tensor, std::size_t count, Dtype dtype) {
  std::vector<Vector> of_nodes;
  int rank = 0;
  for (const int ranks : nodes) {
    std::vector<Vector> of_ranks;
    for (int i = 0; i < ranks; ++i) {
      of_ranks.push_back(values_of(rank++, tensor, count, dtype));
    }
    of_nodes.push_back(tree_of(of_ranks, 0, of_ranks.size()));
  }
  return tree_of(of_nodes, 0, of_nodes.size());
}

Buffer buffer_of(const Vector& values, Dtype dtype) {
  Buffer buffer(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto put = [&](auto typed) { std::memcpy(buffer.data() + i * sizeof typed, &typed, sizeof typed); };
    if (dtype == Dtype::kFloat64) {
      put(values[i]);
    } else if (dtype == Dtype::kFloat32) {
      put(static_cast<float>(values[i]));
    } else {
      const auto value = static_cast<float>(values[i]);
      put(dtype == Dtype::kFloat16 ? float_to_float16(value) : float_to_bfloat16(value));
    }
  }
  return buffer;
}

double value_at(const Buffer& buffer, std::size_t i, Dtype dtype) {
  const auto get = [&](auto typed) {
    std::memcpy(&typed, buffer.data() + i * sizeof typed, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case Dtype::kFloat16:
      return float16_to_float(get(std::uint16_t{}));
    case Dtype::kBfloat16:
      return bfloat16_to_float(get(std::uint16_t{}));
    case Dtype::kFloat32:
      return get(float{});
    default:
      return get(double{});
  }
}

// Tensors 0, 1, ... of these sizes, all in one call; the results.
Result<std::vector<Buffer>> run_together(Rank& rank, const std::vector<std::size_t>& sizes, Dtype dtype) {
  std::vector<Buffer> buffers;
  std::vector<MutableBytes> tensors;
  for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    buffers.push_back(buffer_of(values_of(rank.map.rank, tensor, sizes[tensor], dtype), dtype));
  }
  for (Buffer& buffer : buffers) {
    tensors.emplace_back(buffer);
  }
  HVD_TRY(rank.backend.adasum(tensors, dtype, {}, rank.interrupt));
  return buffers;
}

void require_all_ok(const std::vector<std::optional<Error>>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    INFO("rank " << rank << ": " << (errors[rank] ? errors[rank]->message() : "ok"));
    CHECK_FALSE(errors[rank].has_value());
  }
}

// Of each rank.
std::vector<std::vector<Buffer>> run_job(const Nodes& nodes, const std::vector<std::size_t>& sizes, Dtype dtype,
                                         std::size_t slot_bytes = 4096) {
  std::vector<std::vector<Buffer>> results(static_cast<std::size_t>(rank_count(nodes)));
  ThreadJob job(nodes);
  JobOptions options;
  options.shm_slot_bytes = slot_bytes;
  require_all_ok(job.run(options, [&](Rank& rank) -> Result<void> {
    HVD_TRY_ASSIGN(results[static_cast<std::size_t>(rank.map.rank)], run_together(rank, sizes, dtype));
    return {};
  }));
  return results;
}

std::size_t count_far(const Buffer& got, const Vector& want, Dtype dtype) {
  double largest = 0;
  for (const double value : want) {
    largest = std::max(largest, std::fabs(value));
  }
  std::size_t far = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    far += std::fabs(value_at(got, i, dtype) - want[i]) <= largest * tolerance_of(dtype) ? 0U : 1U;
  }
  return far;
}

}  // namespace

TEST_CASE("Adasum gives the float64 reference's result on every placement, the same on all ranks") {
  for (const Nodes& nodes : kPlacements) {
    for (const Dtype dtype : kDtypes) {
      CAPTURE(text_of(nodes));
      CAPTURE(name_of(dtype));
      const auto results = run_job(nodes, kSizes, dtype);
      for (std::size_t tensor = 0; tensor < kSizes.size(); ++tensor) {
        CAPTURE(kSizes[tensor]);
        CHECK(count_far(results[0][tensor], reference(nodes, tensor, kSizes[tensor], dtype), dtype) == 0);
      }
      for (const auto& of_rank : results) {
        CHECK(of_rank == results[0]);
      }
    }
  }
}

TEST_CASE("a million elements by Adasum come out right") {
  // The sanitizers watch each access; what they look for, they find with fewer.
  const std::vector<std::size_t> sizes = {kHasThreadSanitizer || kHasAddressSanitizer ? 250'003U : 1'000'003U};
  for (const Nodes& nodes : {Nodes{2}, Nodes{4}, Nodes{1, 1}, Nodes{3, 1}}) {
    CAPTURE(text_of(nodes));
    const auto results = run_job(nodes, sizes, Dtype::kFloat32, 4U << 20U);
    CHECK(count_far(results[0][0], reference(nodes, 0, sizes[0], Dtype::kFloat32), Dtype::kFloat32) == 0);
    CHECK(results.back() == results.front());
  }
}

TEST_CASE("Adasum is bitwise the same on every run, and whatever tensors go together") {
  for (const Nodes& nodes : {Nodes{4}, Nodes{1, 2, 4}, Nodes{1, 1, 1}}) {
    CAPTURE(text_of(nodes));
    const auto together = run_job(nodes, {3000, 17, 70'000}, Dtype::kFloat32);
    CHECK(run_job(nodes, {3000, 17, 70'000}, Dtype::kFloat32) == together);
    CHECK(run_job(nodes, {3000}, Dtype::kFloat32)[0][0] == together[0][0]);
    CHECK(run_job(nodes, {3000, 17}, Dtype::kFloat32)[0][1] == together[0][1]);
  }
}

}  // namespace hvd::adasum_test
