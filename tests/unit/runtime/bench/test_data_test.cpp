// runtime/bench/test_data: a wrong result of any kind must show.
#include "runtime/bench/test_data.h"

#include <cstring>

#include <doctest/doctest.h>

#include "runtime/algo/reduce_kernels.h"

namespace hvd::bench::test_data_test {
namespace {

using Buffer = std::vector<std::byte>;

constexpr std::int64_t kCount = 5000;

Buffer brought(const TestData& data, Dtype dtype, int rank, std::int64_t first = 0) {
  Buffer buffer(kCount * hvd::size_of(dtype));
  data.fill(buffer.data(), kCount, rank, first);
  return buffer;
}

}  // namespace

TEST_CASE("the reference is what the runtime's own loops make, for every type and operator") {
  for (int number = 0; number < hvd::kDtypeCount; ++number) {
    const auto dtype = static_cast<Dtype>(number);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      for (const int ranks : {1, 2, 3, 8, 70, 130}) {
        CAPTURE(hvd::name_of(dtype));
        CAPTURE(static_cast<int>(op));
        CAPTURE(ranks);
        const TestData data(ranks, dtype, op, 7);
        Buffer sum = brought(data, dtype, 0);
        for (int rank = 1; rank < ranks; ++rank) {
          const Buffer other = brought(data, dtype, rank);
          hvd::reduce_into(sum.data(), other.data(), kCount, dtype, op);
        }
        CHECK(data.count_wrong_reduction(sum.data(), kCount) == 0);
        const std::size_t at = 1234 * hvd::size_of(dtype);
        std::memset(sum.data() + at, 0x5B, hvd::size_of(dtype));
        CHECK(data.count_wrong_reduction(sum.data(), kCount) == 1);
      }
    }
  }
}

TEST_CASE("what another rank brings, at another place or in another round is wrong") {
  const TestData data(4, Dtype::kFloat32, ReduceOp::kSum, 1);
  const Buffer own = brought(data, Dtype::kFloat32, 2);
  CHECK(data.count_wrong(own.data(), kCount, 2) == 0);
  CHECK(data.count_wrong(own.data(), kCount, 3) > kCount / 2);
  for (const std::int64_t away : {1, 2, 64, 1024, 4096, 65536, 1 << 20}) {
    CHECK(data.count_wrong(own.data(), kCount, 2, away) > kCount / 2);
  }
  CHECK(TestData(4, Dtype::kFloat32, ReduceOp::kSum, 2).count_wrong(own.data(), kCount, 2) > kCount / 2);
  const Buffer later = brought(data, Dtype::kFloat32, 2, 777);
  CHECK(data.count_wrong(later.data(), kCount, 2, 777) == 0);
}

}  // namespace hvd::bench::test_data_test
