#include "runtime/bench/test_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/float16.h"

namespace hvd::bench {
namespace {

constexpr int kPeriod = 1009;
// The most ranks that contribute a nonzero value to one element of a sum. With values up to 3 the sum stays below 256,
// the last whole number that bfloat16 and uint8 represent.
constexpr int kMostAddends = 64;

// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

template <typename T>
void put(std::byte* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

template <typename T>
T get(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}

void encode(std::byte* out, Dtype dtype, double value) {
  const auto whole = static_cast<std::int64_t>(value);
  switch (dtype) {
    case Dtype::kBool:
      return put(out, static_cast<std::uint8_t>(value != 0));
    case Dtype::kUint8:
    case Dtype::kInt8:
      return put(out, static_cast<std::uint8_t>(whole));
    case Dtype::kUint16:
    case Dtype::kInt16:
      return put(out, static_cast<std::uint16_t>(whole));
    case Dtype::kInt32:
      return put(out, static_cast<std::int32_t>(whole));
    case Dtype::kInt64:
      return put(out, whole);
    case Dtype::kFloat16:
      return put(out, float_to_float16(static_cast<float>(value)));
    case Dtype::kBfloat16:
      return put(out, float_to_bfloat16(static_cast<float>(value)));
    case Dtype::kFloat32:
      return put(out, static_cast<float>(value));
    case Dtype::kFloat64:
      return put(out, value);
  }
}

// Decodes an element of a floating type.
double decode(const std::byte* from, Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return static_cast<double>(float16_to_float(get<std::uint16_t>(from)));
    case Dtype::kBfloat16:
      return static_cast<double>(bfloat16_to_float(get<std::uint16_t>(from)));
    case Dtype::kFloat32:
      return static_cast<double>(get<float>(from));
    default:
      return get<double>(from);
  }
}

// Returns the distance between 1 and the next number.
double epsilon(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return std::ldexp(1.0, -10);
    case Dtype::kBfloat16:
      return std::ldexp(1.0, -7);
    case Dtype::kFloat32:
      return std::ldexp(1.0, -23);
    default:
      return std::ldexp(1.0, -52);
  }
}

}  // namespace

TestData::TestData(int ranks, Dtype dtype, ReduceOp op, std::uint64_t seed)
    : ranks_(ranks), dtype_(dtype), op_(op), seed_(seed) {}

int TestData::value(int rank, int phase) const {
  const auto place = static_cast<std::uint64_t>(rank) * kPeriod + static_cast<std::uint64_t>(phase);
  const std::uint64_t random = mix(seed_ * 0x9E3779B97F4A7C15U + place + 1);
  if (op_ == ReduceOp::kProduct) {
    return (rank + phase) % ranks_ == 0 ? static_cast<int>(random % 3) : 1;
  }
  if (op_ == ReduceOp::kMin || op_ == ReduceOp::kMax) {
    return static_cast<int>(random % 101);
  }
  const int share = (ranks_ + kMostAddends - 1) / kMostAddends;
  return (rank + phase) % share == 0 ? static_cast<int>(random % 4) : 0;
}

double TestData::reduction(int phase) const {
  double result = value(0, phase);
  for (int rank = 1; rank < ranks_; ++rank) {
    const double other = value(rank, phase);
    result = op_ == ReduceOp::kProduct ? result * other
             : op_ == ReduceOp::kMin   ? std::min(result, other)
             : op_ == ReduceOp::kMax   ? std::max(result, other)
                                       : result + other;
  }
  return op_ == ReduceOp::kAverage ? result / ranks_ : result;
}

TestData::Tile TestData::tile_of(int rank) const {
  Tile tile(kPeriod * size_of(dtype_));
  for (int phase = 0; phase < kPeriod; ++phase) {
    encode(tile.data() + static_cast<std::size_t>(phase) * size_of(dtype_), dtype_, value(rank, phase));
  }
  return tile;
}

void TestData::fill(void* out, std::int64_t count, int rank, std::int64_t first) const {
  const Tile tile = tile_of(rank);
  const std::size_t element = size_of(dtype_);
  auto* to = static_cast<std::byte*>(out);
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t phase = (first + at) % kPeriod;
    const std::int64_t some = std::min(count - at, kPeriod - phase);
    std::memcpy(to + static_cast<std::size_t>(at) * element, tile.data() + static_cast<std::size_t>(phase) * element,
                static_cast<std::size_t>(some) * element);
    at += some;
  }
}

std::int64_t TestData::count_wrong(const void* got, std::int64_t count, int rank, std::int64_t first) const {
  return differences(tile_of(rank), got, count, first, false);
}

std::int64_t TestData::count_wrong_reduction(const void* got, std::int64_t count, std::int64_t first) const {
  Tile tile(kPeriod * size_of(dtype_));
  for (int phase = 0; phase < kPeriod; ++phase) {
    std::byte* out = tile.data() + static_cast<std::size_t>(phase) * size_of(dtype_);
    if (dtype_ == Dtype::kBool && (op_ == ReduceOp::kMin || op_ == ReduceOp::kProduct)) {
      bool all = true;
      for (int rank = 0; rank < ranks_; ++rank) {
        all = all && value(rank, phase) != 0;
      }
      encode(out, dtype_, all ? 1 : 0);
    } else {
      encode(out, dtype_, reduction(phase));
    }
  }
  return differences(tile, got, count, first, op_ == ReduceOp::kAverage);
}

std::int64_t TestData::differences(const Tile& tile, const void* got, std::int64_t count, std::int64_t first,
                                   bool is_rounded) const {
  const std::size_t element = size_of(dtype_);
  const auto* from = static_cast<const std::byte*>(got);
  std::int64_t wrong = 0;
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t phase = (first + at) % kPeriod;
    const std::int64_t some = std::min(count - at, kPeriod - phase);
    const std::byte* is = from + static_cast<std::size_t>(at) * element;
    const std::byte* should = tile.data() + static_cast<std::size_t>(phase) * element;
    at += some;
    if (std::memcmp(is, should, static_cast<std::size_t>(some) * element) == 0) {
      continue;
    }
    for (std::int64_t i = 0; i < some; ++i, is += element, should += element) {
      const bool is_close = is_rounded && std::abs(decode(is, dtype_) - decode(should, dtype_)) <=
                                              2 * epsilon(dtype_) * std::abs(decode(should, dtype_));
      wrong += is_close || std::memcmp(is, should, element) == 0 ? 0 : 1;
    }
  }
  return wrong;
}

}  // namespace hvd::bench
