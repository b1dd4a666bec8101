#include "runtime/execute/executor.h"

#include <array>
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>

#include "runtime/algo/reduce_kernels.h"

namespace hvd::executor_test {

TEST_CASE("an average of equal integers is that integer, for any number of ranks") {
  for (int size = 1; size <= 2000; ++size) {
    const Scale scale = result_scale(ReduceOp::kAverage, 1.0, size);
    for (const std::int64_t value : {1, -1, 3, -7, 1'000'000'007}) {
      // One short of a multiple stays below it.
      std::array<std::int64_t, 2> sums = {value * size, std::abs(value * size) - 1};
      scale_in_place(sums.data(), sums.size(), Dtype::kInt64, scale);
      CHECK(sums[0] == value);
      CHECK(sums[1] == (std::abs(value * size) - 1) / size);
    }
  }
}

TEST_CASE("an average is the sum divided by the number of ranks, then rounded") {
  for (int size = 1; size <= 64; ++size) {
    const Scale scale = result_scale(ReduceOp::kAverage, 1.0, size);
    for (int sum = -100; sum <= 100; ++sum) {
      auto narrow = static_cast<float>(sum);
      auto wide = static_cast<double>(sum);
      scale_in_place(&narrow, 1, Dtype::kFloat32, scale);
      scale_in_place(&wide, 1, Dtype::kFloat64, scale);
      CHECK(narrow == static_cast<float>(sum) / static_cast<float>(size));
      CHECK(wide == static_cast<double>(sum) / size);
    }
  }
}

TEST_CASE("a result's scale is a product where that is the quotient") {
  CHECK(result_scale(ReduceOp::kAverage, 1.0, 1).is_one());
  CHECK(result_scale(ReduceOp::kAverage, 3.0, 8).factor == 0.375);
  CHECK(result_scale(ReduceOp::kAverage, 3.0, 8).divisor == 1.0);
  CHECK(result_scale(ReduceOp::kAverage, 3.0, 6).factor == 3.0);
  CHECK(result_scale(ReduceOp::kAverage, 3.0, 6).divisor == 6.0);
  CHECK(result_scale(ReduceOp::kSum, 2.0, 3).factor == 2.0);
  CHECK(result_scale(ReduceOp::kSum, 2.0, 3).divisor == 1.0);
}

}  // namespace hvd::executor_test
