// Every collective on every placement against a reference computed here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "runtime/algo/row_layout.h"
#include "runtime/core/float16.h"
#include "tests/multi/thread_job.h"
#include "tests/support/sanitizers.h"

namespace hvd::collectives_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

namespace {

const std::vector<Nodes> kPlacements = {
    {1},          {2},    {1, 1}, {3}, {1, 2},    {2, 1}, {1, 1, 1}, {4},
    {2, 2},       {3, 1}, {1, 3}, {7}, {1, 2, 4}, {8},    {4, 4},    {1, 1, 1, 1, 1, 1, 1, 1},
    {2, 2, 2, 2},
};
const std::vector<Dtype> kDtypes = {Dtype::kUint8,   Dtype::kInt8,    Dtype::kUint16,  Dtype::kInt16,
                                    Dtype::kInt32,   Dtype::kInt64,   Dtype::kFloat16, Dtype::kBfloat16,
                                    Dtype::kFloat32, Dtype::kFloat64, Dtype::kBool};
const std::vector<ReduceOp> kOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
const std::vector<std::size_t> kSizes = {0, 1, 7, 1024};

using Buffer = std::vector<std::uint8_t>;

// Whole numbers of which sums and products of 8 are exact in every type, so that the reference needs no rounding; of
// narrow ones they wrap, as in the runtime.
int input_value(int rank, std::size_t i, Dtype dtype) {
  static constexpr int kValues[] = {-2, -1, 1, 2};
  const int value = kValues[(i * 7 + static_cast<std::size_t>(rank) * 3 + (i >> 5U)) % 4];
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kUint16:
      return value + 2;  // 0, 1, 3, 4
    case Dtype::kBool:
      return value > 0 ? 1 : 0;
    default:
      return value;
  }
}

template <typename T>
T wrapped(double value) {
  return static_cast<T>(static_cast<std::int64_t>(value));
}

void put(Buffer& buffer, std::size_t i, Dtype dtype, double value) {
  const auto store = [&](auto typed) { std::memcpy(buffer.data() + i * sizeof typed, &typed, sizeof typed); };
  switch (dtype) {
    case Dtype::kFloat32:
      return store(static_cast<float>(value));
    case Dtype::kFloat64:
      return store(value);
    case Dtype::kInt32:
      return store(static_cast<std::int32_t>(value));
    case Dtype::kInt64:
      return store(static_cast<std::int64_t>(value));
    case Dtype::kFloat16:
      return store(float_to_float16(static_cast<float>(value)));
    case Dtype::kBfloat16:
      return store(float_to_bfloat16(static_cast<float>(value)));
    case Dtype::kUint8:
      return store(wrapped<std::uint8_t>(value));
    case Dtype::kInt8:
      return store(wrapped<std::int8_t>(value));
    case Dtype::kUint16:
      return store(wrapped<std::uint16_t>(value));
    case Dtype::kInt16:
      return store(wrapped<std::int16_t>(value));
    case Dtype::kBool:
      return store(static_cast<std::uint8_t>(value != 0.0 ? 1 : 0));
  }
}

double combine(double a, double b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

// After so many elements input_value() begins again.
constexpr std::size_t kPeriod = 128;

// Of a million elements nearly all are copies.
Buffer repeated(Buffer buffer, Dtype dtype) {
  const std::size_t period = kPeriod * size_of(dtype);
  for (std::size_t at = period; at < buffer.size(); at += period) {
    std::memcpy(buffer.data() + at, buffer.data(), std::min(period, buffer.size() - at));
  }
  return buffer;
}

Buffer input_of(int rank, std::size_t count, Dtype dtype) {
  Buffer buffer(count * size_of(dtype));
  for (std::size_t i = 0; i < std::min(count, kPeriod); ++i) {
    put(buffer, i, dtype, input_value(rank, i, dtype));
  }
  return repeated(std::move(buffer), dtype);
}

Buffer reduced_of(int size, std::size_t count, Dtype dtype, ReduceOp op) {
  Buffer buffer(count * size_of(dtype));
  for (std::size_t i = 0; i < std::min(count, kPeriod); ++i) {
    double value = input_value(0, i, dtype);
    for (int rank = 1; rank < size; ++rank) {
      value = combine(value, input_value(rank, i, dtype), op);
    }
    put(buffer, i, dtype, value);
  }
  return repeated(std::move(buffer), dtype);
}

Error wrong(const std::string& what) {
  return Error(Code::kInternal, "wrong result: " + what);
}

Result<void> check_allreduce(Rank& rank, std::size_t count, Dtype dtype, ReduceOp op) {
  Buffer data = input_of(rank.map.rank, count, dtype);
  HVD_TRY(rank.backend.allreduce(data.data(), count, dtype, op, rank.interrupt));
  if (data != reduced_of(rank.map.size, count, dtype, op)) {
    return wrong("allreduce of " + std::to_string(count) + " " + name_of(dtype) + ", op " +
                 std::to_string(static_cast<int>(op)));
  }
  return {};
}

std::uint8_t byte_of(int rank, std::size_t i) {
  return static_cast<std::uint8_t>(i * 31 + static_cast<std::size_t>(rank) * 101 + (i >> 8U));
}

Result<void> check_broadcast(Rank& rank, std::size_t size_bytes, int root) {
  Buffer data(size_bytes);
  Buffer expected(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    data[i] = byte_of(rank.map.rank, i);
    expected[i] = byte_of(root, i);
  }
  HVD_TRY(rank.backend.broadcast(data.data(), size_bytes, root, rank.interrupt));
  return data == expected ? Result<void>() : wrong("broadcast of " + std::to_string(size_bytes) + " bytes");
}

// Rank r brings base * ((r * 5 + 3) % 4) bytes: some bring nothing.
Result<void> check_allgather(Rank& rank, std::size_t base) {
  std::vector<std::size_t> sizes;
  Buffer expected;
  Buffer input;
  for (int r = 0; r < rank.map.size; ++r) {
    sizes.push_back(base * static_cast<std::size_t>((r * 5 + 3) % 4));
    for (std::size_t i = 0; i < sizes.back(); ++i) {
      expected.push_back(byte_of(r, i));
      if (r == rank.map.rank) {
        input.push_back(byte_of(r, i));
      }
    }
  }
  Buffer out(expected.size());
  HVD_TRY(rank.backend.allgather(input.data(), sizes, out.data(), rank.interrupt));
  return out == expected ? Result<void>() : wrong("allgather of " + std::to_string(base) + " bytes");
}

// `count` rows of three elements; each rank gets its even share of the rows.
Result<void> check_reducescatter(Rank& rank, std::size_t count, Dtype dtype, ReduceOp op) {
  const std::size_t row_bytes = 3 * size_of(dtype);
  std::vector<std::size_t> sizes;
  std::size_t before = 0;
  for (const std::int64_t rows : even_rows(static_cast<std::int64_t>(count), rank.map.size)) {
    before += sizes.size() < static_cast<std::size_t>(rank.map.rank) ? static_cast<std::size_t>(rows) * row_bytes : 0;
    sizes.push_back(static_cast<std::size_t>(rows) * row_bytes);
  }
  const std::size_t own = sizes[static_cast<std::size_t>(rank.map.rank)];
  const Buffer input = input_of(rank.map.rank, count * 3, dtype);
  const Buffer whole = reduced_of(rank.map.size, count * 3, dtype, op);
  Buffer out(own);
  HVD_TRY(rank.backend.reducescatter(input.data(), sizes, out.data(), dtype, op, rank.interrupt));
  if (out != Buffer(whole.data() + before, whole.data() + before + own) ||
      input != input_of(rank.map.rank, count * 3, dtype)) {
    return wrong("reducescatter of " + std::to_string(count) + " rows of " + name_of(dtype) + ", op " +
                 std::to_string(static_cast<int>(op)));
  }
  return {};
}

// Rank `from` has base * ((3 * from + 2 * to) % 4) bytes for rank `to`: some have nothing for some.
Result<void> check_alltoall(Rank& rank, std::size_t base) {
  const auto size = static_cast<std::size_t>(rank.map.size);
  const auto self = static_cast<std::size_t>(rank.map.rank);
  std::vector<std::size_t> sizes;
  Buffer input;
  Buffer expected;
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      sizes.push_back(base * ((3 * from + 2 * to) % 4));
      for (std::size_t i = 0; i < sizes.back(); ++i) {
        const std::uint8_t byte = byte_of(static_cast<int>(from), i + to * 1000);
        if (from == self) {
          input.push_back(byte);
        }
        if (to == self) {
          expected.push_back(byte);
        }
      }
    }
  }
  const Buffer before = input;
  Buffer out(expected.size());
  HVD_TRY(rank.backend.alltoall(input.data(), sizes, out.data(), rank.interrupt));
  return out == expected && input == before ? Result<void>() : wrong("alltoall of " + std::to_string(base) + " bytes");
}

Result<void> check_everything(Rank& rank) {
  for (const std::size_t count : kSizes) {
    for (const Dtype dtype : kDtypes) {
      for (const ReduceOp op : kOps) {
        HVD_TRY(check_allreduce(rank, count, dtype, op));
        HVD_TRY(check_reducescatter(rank, count, dtype, op));
      }
    }
    for (int root = 0; root < rank.map.size; ++root) {
      HVD_TRY(check_broadcast(rank, count * 9, root));
    }
    HVD_TRY(check_allgather(rank, count * 3));
    HVD_TRY(check_alltoall(rank, count * 3));
    HVD_TRY(rank.backend.barrier(rank.interrupt));
  }
  return {};
}

void require_all_ok(const std::vector<std::optional<Error>>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    INFO("rank " << rank << ": " << (errors[rank] ? errors[rank]->message() : "ok"));
    CHECK_FALSE(errors[rank].has_value());
  }
}

std::vector<float> noise(int rank, std::size_t count) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(rank + 1));
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random()) - 2147483648.0F, -static_cast<int>(random() % 40));
  }
  return values;
}

// The result on each rank of a reducescatter of the same, side by side.
std::vector<float> scatter_noise(const Nodes& nodes, std::size_t count) {
  const auto rows = even_rows(static_cast<std::int64_t>(count), rank_count(nodes));
  std::vector<std::size_t> sizes;
  for (const std::int64_t share : rows) {
    sizes.push_back(static_cast<std::size_t>(share) * sizeof(float));
  }
  std::vector<std::vector<float>> shares(sizes.size());
  ThreadJob job(nodes);
  require_all_ok(job.run({}, [&](Rank& rank) -> Result<void> {
    const auto self = static_cast<std::size_t>(rank.map.rank);
    const std::vector<float> data = noise(rank.map.rank, count);
    shares[self].resize(static_cast<std::size_t>(rows[self]));
    return rank.backend.reducescatter(data.data(), sizes, shares[self].data(), Dtype::kFloat32, ReduceOp::kSum,
                                      rank.interrupt);
  }));
  std::vector<float> whole;
  for (const auto& share : shares) {
    whole.insert(whole.end(), share.begin(), share.end());
  }
  return whole;
}

// The result on each rank of a sum that depends on its order.
std::vector<std::vector<float>> sum_noise(const Nodes& nodes, std::size_t count) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(rank_count(nodes)));
  ThreadJob job(nodes);
  require_all_ok(job.run({}, [&](Rank& rank) -> Result<void> {
    std::vector<float> data = noise(rank.map.rank, count);
    HVD_TRY(rank.backend.allreduce(data.data(), count, Dtype::kFloat32, ReduceOp::kSum, rank.interrupt));
    results[static_cast<std::size_t>(rank.map.rank)] = std::move(data);
    return {};
  }));
  return results;
}

}  // namespace

TEST_CASE("every collective gives the reference's result on every placement") {
  for (const Nodes& nodes : kPlacements) {
    CAPTURE(text_of(nodes));
    ThreadJob job(nodes);
    JobOptions options;
    options.shm_slot_bytes = 4096;  // chunks of 1,344 bytes, so that small data takes many phases
    require_all_ok(job.run(options, check_everything));
    CHECK(job.log().lines().empty());
    CHECK(job.scratch().is_empty());
  }
}

TEST_CASE("and so it does between nodes by pairs alone, by rings alone, in small pieces and in segments") {
  Tuning pairs;
  pairs.pairs_bytes = 64U << 20U;
  Tuning rings;
  rings.pairs_bytes = 0;
  rings.wire_bytes = 4096;
  Tuning segments = rings;
  segments.segment_bytes = 64U << 10U;
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 1, 1}, Nodes{1, 2, 1, 1, 2, 1}, Nodes{1, 1, 1, 1, 1, 1, 1, 1}}) {
    for (const Tuning& tuning : {pairs, rings, segments}) {
      CAPTURE(text_of(nodes));
      CAPTURE(tuning.pairs_bytes);
      CAPTURE(tuning.segment_bytes);
      ThreadJob job(nodes);
      JobOptions options;
      options.tuning = tuning;
      require_all_ok(job.run(options, [](Rank& rank) -> Result<void> {
        HVD_TRY(check_everything(rank));
        for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{40'003}}) {
          HVD_TRY(check_allreduce(rank, count, Dtype::kFloat32, ReduceOp::kSum));
          HVD_TRY(check_allreduce(rank, count, Dtype::kInt64, ReduceOp::kMin));
          HVD_TRY(check_broadcast(rank, count, rank.map.size - 1));
        }
        return {};
      }));
    }
  }
}

TEST_CASE("and so it does over connections that are encrypted") {
  Tuning pairs;
  pairs.pairs_bytes = 64U << 20U;
  Tuning rings;
  rings.pairs_bytes = 0;
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{2, 1}, Nodes{1, 1, 1, 1}}) {
    for (const Tuning& tuning : {Tuning(), pairs, rings}) {
      CAPTURE(text_of(nodes));
      ThreadJob job(nodes);
      JobOptions options;
      options.tuning = tuning;
      options.is_sealed = [](int) { return true; };
      require_all_ok(job.run(options, [](Rank& rank) -> Result<void> {
        HVD_TRY(check_everything(rank));
        HVD_TRY(check_allreduce(rank, 400'003, Dtype::kFloat32, ReduceOp::kSum));
        return check_broadcast(rank, 1'000'003, rank.map.size - 1);
      }));
    }
  }
}

TEST_CASE("a million elements of each type come out right by each operation on each number of ranks") {
  // The sanitizers watch each access; what they look for, they find with fewer.
  static constexpr std::size_t kMany = kHasThreadSanitizer ? 10'003 : kHasAddressSanitizer ? 250'003 : 1'000'003;
  for (const Nodes& nodes :
       {Nodes{1}, Nodes{2}, Nodes{3}, Nodes{4}, Nodes{7}, Nodes{8}, Nodes{1, 1}, Nodes{3, 1}, Nodes{2, 2}}) {
    CAPTURE(text_of(nodes));
    ThreadJob job(nodes);
    require_all_ok(job.run({}, [](Rank& rank) -> Result<void> {
      for (const Dtype dtype : kDtypes) {
        for (const ReduceOp op : kOps) {
          HVD_TRY(check_allreduce(rank, kMany, dtype, op));
        }
        HVD_TRY(check_reducescatter(rank, kMany / 3, dtype, ReduceOp::kSum));
        HVD_TRY(check_reducescatter(rank, kMany / 3, dtype, ReduceOp::kMin));
      }
      HVD_TRY(check_broadcast(rank, kMany, rank.map.size - 1));
      HVD_TRY(check_alltoall(rank, kMany / 4));
      return check_allgather(rank, kMany / 4);
    }));
  }
}

TEST_CASE("a sum that rounds is bitwise the same on every rank and on every run, and close to the exact one") {
  // What goes in pairs between nodes, and what goes along a ring.
  const std::pair<Nodes, std::size_t> cases[] = {
      {{4}, 50'001},       {{1, 2, 4}, 50'001}, {{1, 1, 1}, 50'001},      {{1, 1}, 10'001},
      {{1, 1, 1}, 10'001}, {{1, 2, 4}, 10'001}, {{1, 1, 1, 1, 1}, 9'001}, {{1, 2, 1, 1, 2, 1}, 9'001}};
  for (const auto& one : cases) {
    const Nodes& nodes = one.first;
    const std::size_t count = one.second;
    CAPTURE(text_of(nodes));
    CAPTURE(count);
    const auto first = sum_noise(nodes, count);
    const auto second = sum_noise(nodes, count);
    std::vector<double> exact(count, 0.0);
    std::vector<double> magnitude(count, 0.0);
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
      CHECK(std::memcmp(first[0].data(), first[rank].data(), count * sizeof(float)) == 0);
      CHECK(std::memcmp(first[0].data(), second[rank].data(), count * sizeof(float)) == 0);
      const auto values = noise(static_cast<int>(rank), count);
      for (std::size_t i = 0; i < count; ++i) {
        exact[i] += static_cast<double>(values[i]);
        magnitude[i] += std::fabs(static_cast<double>(values[i]));
      }
    }
    const std::vector<float> scattered = scatter_noise(nodes, count);
    const std::vector<float> scattered_again = scatter_noise(nodes, count);
    CHECK(std::memcmp(scattered.data(), scattered_again.data(), count * sizeof(float)) == 0);
    std::size_t far = 0;
    for (std::size_t i = 0; i < count; ++i) {
      far += std::fabs(static_cast<double>(scattered[i]) - exact[i]) > magnitude[i] * 1e-6 ? 1U : 0U;
      far += std::fabs(static_cast<double>(first[0][i]) - exact[i]) > magnitude[i] * 1e-6 ? 1U : 0U;
    }
    CHECK(far == 0);
  }
}

TEST_CASE("operations of all kinds in a row use the shared memory in turn without harm") {
  ThreadJob job({3, 2});
  JobOptions options;
  options.shm_slot_bytes = 4096;
  require_all_ok(job.run(options, [](Rank& rank) -> Result<void> {
    std::mt19937 random(7);  // the same choices on every rank
    for (int i = 0; i < 300; ++i) {
      const std::size_t count = random() % 900;
      switch (random() % 6) {
        case 0:
          HVD_TRY(check_allreduce(rank, count, Dtype::kFloat32, ReduceOp::kSum));
          break;
        case 1:
          HVD_TRY(check_broadcast(rank, count, static_cast<int>(random() % 5)));
          break;
        case 2:
          HVD_TRY(check_allgather(rank, count));
          break;
        case 3:
          HVD_TRY(check_alltoall(rank, count));
          break;
        case 4:
          HVD_TRY(check_reducescatter(rank, count, Dtype::kInt16, ReduceOp::kSum));
          break;
        default:
          HVD_TRY(rank.backend.barrier(rank.interrupt));
      }
    }
    return {};
  }));
}

TEST_CASE("no rank passes a barrier before the last one has come") {
  for (const Nodes& nodes : {Nodes{4}, Nodes{1, 1, 1}, Nodes{2, 3}}) {
    CAPTURE(text_of(nodes));
    ThreadJob job(nodes);
    std::atomic<int> arrived{0};
    const int size = rank_count(nodes);
    require_all_ok(job.run({}, [&](Rank& rank) -> Result<void> {
      for (int round = 1; round <= 50; ++round) {
        ++arrived;
        HVD_TRY(rank.backend.barrier(rank.interrupt));
        if (arrived.load() < round * size) {
          return wrong("barrier " + std::to_string(round));
        }
        HVD_TRY(rank.backend.barrier(rank.interrupt));
      }
      return {};
    }));
  }
}

}  // namespace hvd::collectives_test
