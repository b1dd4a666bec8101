#include "runtime/algo/reduce_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/algo/reduce_loops.h"
#include "runtime/core/float16.h"

namespace hvd::reduce_kernels_test {
namespace {

// binary16 by its definition, in double.
double value_of_float16(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

bool is_nan16(std::uint16_t half) {
  return (half & 0x7FFF) > 0x7C00;
}

// Nearest, ties to even, found from the neighbours: no shared arithmetic with the code under test.
bool is_nearest_float16(std::uint16_t half, double value) {
  if (is_nan16(half) || std::signbit(value) != ((half & 0x8000) != 0)) {
    return false;
  }
  const double magnitude = std::fabs(value);
  const auto rest = static_cast<std::uint16_t>(half & 0x7FFF);
  // What infinity would be if the format went on: rounding treats it so.
  const auto at = [](int code) {
    return code == 0x7C00 ? 65536.0 : value_of_float16(static_cast<std::uint16_t>(code));
  };
  const bool is_even = (rest & 1) == 0;
  if (rest > 0) {
    const double middle = (at(rest) + at(rest - 1)) / 2;
    if (magnitude < middle || (magnitude == middle && !is_even)) {
      return false;
    }
  }
  if (rest < 0x7C00) {
    const double middle = (at(rest) + at(rest + 1)) / 2;
    if (magnitude > middle || (magnitude == middle && !is_even)) {
      return false;
    }
  }
  return true;
}

template <typename T>
std::vector<T> reduced(std::vector<T> a, const std::vector<T>& b, Dtype dtype, ReduceOp op) {
  reduce_into(a.data(), b.data(), a.size(), dtype, op);
  return a;
}

template <typename T>
std::vector<T> scaled(std::vector<T> values, Dtype dtype, Scale scale) {
  scale_in_place(values.data(), values.size(), dtype, scale);
  return values;
}

template <typename T>
void check_integer(Dtype dtype) {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> a = {Limits::max(), Limits::min(), 3, 0};
  const std::vector<T> b = {1, 1, 5, Limits::max()};
  using U = std::make_unsigned_t<T>;
  CHECK(reduced(a, b, dtype, ReduceOp::kSum)[0] == Limits::min());  // wraps
  CHECK(reduced(a, b, dtype, ReduceOp::kSum)[2] == 8);
  CHECK(reduced(a, b, dtype, ReduceOp::kMin) == std::vector<T>{1, Limits::min(), 3, 0});
  CHECK(reduced(a, b, dtype, ReduceOp::kMax) == std::vector<T>{Limits::max(), 1, 5, Limits::max()});
  CHECK(reduced(a, b, dtype, ReduceOp::kProduct)[2] == 15);
  const std::vector<T> large = {Limits::max()};
  const auto square = static_cast<std::uint64_t>(static_cast<U>(Limits::max()));
  CHECK(static_cast<U>(reduced(large, large, dtype, ReduceOp::kProduct)[0]) == static_cast<U>(square * square));
}

}  // namespace

TEST_CASE("every float16 becomes its exact float32 and comes back") {
  int wrong = 0;
  for (int code = 0; code < 65536; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = float16_to_float(half);
    if (is_nan16(half)) {
      wrong += std::isnan(value) && is_nan16(float_to_float16(value)) ? 0 : 1;
    } else {
      const double expected = value_of_float16(half);
      wrong += static_cast<double>(value) == expected && std::signbit(value) == std::signbit(expected) ? 0 : 1;
      wrong += float_to_float16(value) == half ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("float32 is rounded to the nearest float16, ties to even, at every boundary") {
  int wrong = 0;
  const auto check = [&](float value) {
    wrong += is_nearest_float16(float_to_float16(value), static_cast<double>(value)) ? 0 : 1;
  };
  for (int code = 0; code < 0x7C00; ++code) {
    const double low = value_of_float16(static_cast<std::uint16_t>(code));
    const double high = code == 0x7BFF ? 65536.0 : value_of_float16(static_cast<std::uint16_t>(code + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: float32 has 13 more bits
    for (const float value : {middle, std::nextafterf(middle, 0.0F), std::nextafterf(middle, 1e9F)}) {
      check(value);
      check(-value);
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(value)) {
      check(value);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("the extremes of float32 become float16 as they must") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(float_to_float16(inf) == 0x7C00);
  CHECK(float_to_float16(-inf) == 0xFC00);
  CHECK(float_to_float16(65504.0F) == 0x7BFF);
  CHECK(float_to_float16(65519.996F) == 0x7BFF);
  CHECK(float_to_float16(65520.0F) == 0x7C00);
  CHECK(float_to_float16(-0.0F) == 0x8000);
  CHECK(float_to_float16(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(float_to_float16(std::ldexp(1.0F, -25)) == 0);  // half of the smallest: to even
  CHECK(float_to_float16(std::nextafterf(std::ldexp(1.0F, -25), 1.0F)) == 1);
  CHECK(is_nan16(float_to_float16(std::numeric_limits<float>::quiet_NaN())));
  // A signalling NaN whose payload is in the bits that are dropped stays a NaN.
  CHECK(is_nan16(float_to_float16(std::bit_cast<float>(0x7F800001U))));
}

TEST_CASE("bfloat16 is the upper half of float32, rounded to nearest even") {
  int wrong = 0;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = bfloat16_to_float(half);
    if (std::isnan(value)) {
      wrong += std::isnan(bfloat16_to_float(float_to_bfloat16(value))) ? 0 : 1;
      continue;
    }
    wrong += float_to_bfloat16(value) == half ? 0 : 1;
    if (std::isinf(value)) {
      continue;
    }
    const std::uint32_t bits = code << 16U;
    const auto up = static_cast<std::uint16_t>(code + 1);
    const std::uint16_t tie = (code & 1U) == 0 ? half : up;
    wrong += float_to_bfloat16(std::bit_cast<float>(bits | 0x7FFFU)) == half ? 0 : 1;
    wrong += float_to_bfloat16(std::bit_cast<float>(bits | 0x8000U)) == tie ? 0 : 1;
    wrong += float_to_bfloat16(std::bit_cast<float>(bits | 0x8001U)) == up ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
  CHECK(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7FFFFFFFU)))));
}

TEST_CASE("integers of every width are reduced and wrap") {
  check_integer<std::uint8_t>(Dtype::kUint8);
  check_integer<std::int8_t>(Dtype::kInt8);
  check_integer<std::uint16_t>(Dtype::kUint16);
  check_integer<std::int16_t>(Dtype::kInt16);
  check_integer<std::int32_t>(Dtype::kInt32);
  check_integer<std::int64_t>(Dtype::kInt64);
}

TEST_CASE("floats are reduced, and a NaN of either side is the minimum and the maximum") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {1.5F, nan, 2.0F};
  const std::vector<float> b = {-2.0F, 1.0F, nan};
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto result = reduced(a, b, Dtype::kFloat32, op);
    CHECK(result[0] == (op == ReduceOp::kMin ? -2.0F : 1.5F));
    CHECK(std::isnan(result[1]));
    CHECK(std::isnan(result[2]));
  }
  CHECK(reduced<double>({0.1}, {0.2}, Dtype::kFloat64, ReduceOp::kSum)[0] == 0.1 + 0.2);
  CHECK(reduced<double>({3.0}, {-2.0}, Dtype::kFloat64, ReduceOp::kProduct)[0] == -6.0);
}

TEST_CASE("16-bit floats are rounded after each step") {
  const auto half = [](float value) { return float_to_float16(value); };
  // 2048 + 1 lies between 2048 and 2050: to even.
  CHECK(reduced<std::uint16_t>({half(2048)}, {half(1)}, Dtype::kFloat16, ReduceOp::kSum)[0] == half(2048));
  CHECK(reduced<std::uint16_t>({half(2050)}, {half(1)}, Dtype::kFloat16, ReduceOp::kSum)[0] == half(2052));
  CHECK(reduced<std::uint16_t>({half(60000)}, {half(60000)}, Dtype::kFloat16, ReduceOp::kSum)[0] == 0x7C00);
  const auto brain = [](float value) { return float_to_bfloat16(value); };
  CHECK(reduced<std::uint16_t>({brain(256)}, {brain(1)}, Dtype::kBfloat16, ReduceOp::kSum)[0] == brain(256));
  CHECK(reduced<std::uint16_t>({brain(3)}, {brain(-5)}, Dtype::kBfloat16, ReduceOp::kMin)[0] == brain(-5));
  CHECK(reduced<std::uint16_t>({brain(3)}, {brain(-5)}, Dtype::kBfloat16, ReduceOp::kProduct)[0] == brain(-15));
}

TEST_CASE("for bool sum and max are or, product and min are and, and true is 1") {
  const std::vector<std::uint8_t> a = {0, 0, 1, 2};
  const std::vector<std::uint8_t> b = {0, 1, 0, 4};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    CHECK(reduced(a, b, Dtype::kBool, op) == std::vector<std::uint8_t>{0, 1, 1, 1});
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
    CHECK(reduced(a, b, Dtype::kBool, op) == std::vector<std::uint8_t>{0, 0, 0, 1});
  }
}

TEST_CASE("scaling truncates integers toward zero and keeps what does not fit at the end of the range") {
  CHECK(scaled<std::int32_t>({-3, 3, 7}, Dtype::kInt32, 0.5) == std::vector<std::int32_t>{-1, 1, 3});
  CHECK(scaled<std::int8_t>({100, -100}, Dtype::kInt8, 2.0) == std::vector<std::int8_t>{127, -128});
  CHECK(scaled<std::uint8_t>({3}, Dtype::kUint8, -1.0) == std::vector<std::uint8_t>{0});
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  CHECK(scaled<std::int64_t>({large, -large}, Dtype::kInt64, 4.0) ==
        std::vector<std::int64_t>{large, std::numeric_limits<std::int64_t>::min()});
  CHECK(scaled<std::int64_t>({large}, Dtype::kInt64, 1.0)[0] == large);  // a factor of 1 touches nothing
  CHECK(scaled<std::int32_t>({1}, Dtype::kInt32, std::numeric_limits<double>::quiet_NaN())[0] == 0);
}

TEST_CASE("scaling computes narrow floats in float32 and float64 in double") {
  CHECK(scaled<float>({3.0F}, Dtype::kFloat32, 1.0 / 3.0)[0] == 3.0F * static_cast<float>(1.0 / 3.0));
  CHECK(scaled<double>({3.0}, Dtype::kFloat64, 0.1)[0] == 3.0 * 0.1);
  CHECK(scaled<std::uint16_t>({float_to_float16(3)}, Dtype::kFloat16, 0.5)[0] == float_to_float16(1.5F));
  CHECK(scaled<std::uint8_t>({1, 0}, Dtype::kBool, 0.5) == std::vector<std::uint8_t>{0, 0});
}

TEST_CASE("a division is rounded once, and is no product with the reciprocal") {
  const Scale third(1.0, 3.0);
  CHECK(10.0F * static_cast<float>(1.0 / 3.0) != 10.0F / 3.0F);
  CHECK(scaled<float>({10.0F, -10.0F}, Dtype::kFloat32, third) == std::vector<float>{10.0F / 3.0F, -10.0F / 3.0F});
  CHECK(scaled<double>({5.0}, Dtype::kFloat64, third)[0] == 5.0 / 3.0);
  CHECK(scaled<float>({5.0F}, Dtype::kFloat32, Scale(0.7, 3.0))[0] == 5.0F * 0.7F / 3.0F);
  CHECK(scaled<std::int32_t>({147, -147, 148, -148}, Dtype::kInt32, third) ==
        std::vector<std::int32_t>{49, -49, 49, -49});
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const auto store = dtype == Dtype::kFloat16 ? float_to_float16 : float_to_bfloat16;
    const auto load = dtype == Dtype::kFloat16 ? float16_to_float : bfloat16_to_float;
    std::vector<std::uint16_t> values;
    std::vector<std::uint16_t> expected;
    for (int value = -200; value <= 200; ++value) {
      values.push_back(store(static_cast<float>(value)));
      expected.push_back(store(load(values.back()) / 3.0F));
    }
    CHECK(scaled(values, dtype, third) == expected);
  }
}

TEST_CASE("int64 is divided and scaled without rounding over its whole range") {
  using Limits = std::numeric_limits<std::int64_t>;
  const auto one = [](std::int64_t value, Scale scale) {
    return scaled<std::int64_t>({value}, Dtype::kInt64, scale).front();
  };
  const std::int64_t nanoseconds = 1'763'911'234'567'890'123;
  for (const std::int64_t parts : {std::int64_t{2}, std::int64_t{3}, std::int64_t{7}, std::int64_t{1024}}) {
    const bool is_power = (parts & (parts - 1)) == 0;
    const Scale by = is_power ? Scale(1.0 / static_cast<double>(parts)) : Scale(1.0, static_cast<double>(parts));
    for (const std::int64_t value :
         {Limits::max(), Limits::min(), Limits::max() - 1, Limits::min() + 1, nanoseconds, -nanoseconds,
          std::int64_t{9'007'199'254'740'993}, std::int64_t{-1}, 3 * std::int64_t{3'074'457'345'618'258'602}}) {
      CAPTURE(value);
      CAPTURE(parts);
      CHECK(one(value, by) == value / parts);
    }
  }
  CHECK(one(Limits::max(), 1.0) == Limits::max());
  CHECK(one(Limits::max(), -1.0) == -Limits::max());
  CHECK(one(Limits::min(), -1.0) == Limits::max());
  CHECK(one(Limits::min(), 0.75) == Limits::min() / 4 * 3);
  CHECK(one(Limits::max(), 1.5) == Limits::max());
  CHECK(one(Limits::min(), 1.5) == Limits::min());
  CHECK(one(Limits::max(), 1e300) == Limits::max());
  CHECK(one(Limits::max(), -1e300) == Limits::min());
  CHECK(one(Limits::max(), 1e-300) == 0);
  CHECK(one(Limits::max(), Scale(0.75, 3.0)) == Limits::max() / 4);
  CHECK(one((std::int64_t{1} << 53U) + 1, 3.0) == 3 * ((std::int64_t{1} << 53U) + 1));
  CHECK(one(Limits::max(), 0.0) == 0);
  CHECK(one(Limits::max(), std::numeric_limits<double>::quiet_NaN()) == 0);
  CHECK(one(Limits::max(), -std::numeric_limits<double>::infinity()) == Limits::min());
}

TEST_CASE("nothing at no address is reduced and scaled") {
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    reduce_into(nullptr, nullptr, 0, static_cast<Dtype>(dtype), ReduceOp::kSum);
    scale_in_place(nullptr, 0, static_cast<Dtype>(dtype), 2.0);
  }
}

TEST_CASE("a turn copies two runs and reduces a third from any number of operands, in place or not, scaled or not") {
  std::mt19937 random(21);
  const auto bytes_of = [&](std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random()); });
    return bytes;
  };
  const std::vector<std::size_t> counts = {0, 1, 31, 64, 65, 300, 1024};
  const auto any_count = [&] { return counts[random() % counts.size()]; };
  for (int round = 0; round < 2000; ++round) {
    const auto type = static_cast<Dtype>(random() % kDtypeCount);
    const auto op = std::array{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}[random() % 4];
    const Scale scale = std::array{Scale(), Scale(0.5), Scale(1.0, 3.0)}[random() % 3];
    const std::size_t operand_count = 1 + random() % 5;
    const std::size_t size = any_count() * size_of(type);
    CAPTURE(round);
    CAPTURE(static_cast<int>(type));
    CAPTURE(static_cast<int>(op));
    CAPTURE(operand_count);
    CAPTURE(size);
    CAPTURE(scale.factor);
    CAPTURE(scale.divisor);
    std::vector<std::vector<std::uint8_t>> memory;
    for (std::size_t i = 0; i < operand_count; ++i) {
      memory.push_back(bytes_of(size + 1));
      for (std::size_t end = size_of(type); is_floating(type) && end <= size; end += size_of(type)) {
        memory.back()[end - 1] &= 0xBFU;  // below 2: of two NaNs either may be the result
      }
    }
    auto expected = memory.front();
    for (std::size_t i = 1; i < operand_count; ++i) {
      reduce_into(expected.data(), memory[i].data(), size / size_of(type), type, op);
    }
    scale_in_place(expected.data(), size / size_of(type), type, scale);

    auto apart = bytes_of(size + 1);
    auto apart_too = bytes_of(size + 1);
    const std::size_t place = random() % 3;
    auto& result = place < std::min<std::size_t>(operand_count, 2) ? memory[place] : apart;
    auto& output = random() % 2 == 0 ? apart_too : memory[random() % operand_count];
    const bool has_output = random() % 3 != 0;
    const auto published = bytes_of(any_count());
    const auto taken = bytes_of(any_count() * operand_count);
    std::vector<std::uint8_t> published_to(published.size() + 1, 7);
    std::vector<std::uint8_t> taken_to(taken.size() + 1, 7);
    const std::uint8_t after_result = result.back();
    const std::uint8_t after_output = output.back();

    std::vector<const std::uint8_t*> operands;
    for (const auto& one : memory) {
      operands.push_back(one.data());
    }
    reduce_turn({{published_to.data(), published.data(), published.size()},
                 operands,
                 result.data(),
                 has_output && &output != &result ? output.data() : nullptr,
                 size,
                 scale,
                 {taken_to.data(), taken.data(), taken.size()}},
                type, op);
    const auto is_expected = [&](const std::vector<std::uint8_t>& bytes) {
      return std::equal(bytes.begin(), bytes.end() - 1, expected.begin());
    };
    CHECK(is_expected(result));
    CHECK((!has_output || is_expected(output)));
    CHECK(std::equal(published.begin(), published.end(), published_to.begin()));
    CHECK(std::equal(taken.begin(), taken.end(), taken_to.begin()));
    CHECK(published_to.back() == 7);
    CHECK(taken_to.back() == 7);
    CHECK(result.back() == after_result);
    CHECK(output.back() == after_output);
  }
}

TEST_CASE("the loops of every processor give the same bits, whatever the bytes and the place") {
  static constexpr std::size_t kCount = 4097;
  std::mt19937 random(9);
  std::vector<std::uint8_t> a(8 * (kCount + 3));
  std::vector<std::uint8_t> b(a.size());
  const std::vector<ReduceLoops> all = supported_reduce_loops();
  const ReduceLoops reference = reduce_loops_portable();
  CHECK(all.back().name == std::string("portable"));
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    const auto type = static_cast<Dtype>(dtype);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<std::uint8_t>(random());
      b[i] = static_cast<std::uint8_t>(random());
    }
    for (const ReduceLoops& loops : all) {
      for (const std::size_t skipped : {0U, 1U, 3U}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{64}, kCount}) {
          const std::size_t from = skipped * size_of(type);
          const std::size_t bytes = count * size_of(type);
          std::vector<std::uint8_t> expected(bytes);
          std::vector<std::uint8_t> result(a.begin() + static_cast<std::ptrdiff_t>(from),
                                           a.begin() + static_cast<std::ptrdiff_t>(from + bytes));
          for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
            CAPTURE(loops.name);
            CAPTURE(dtype);
            CAPTURE(count);
            const std::array operands = {static_cast<const std::uint8_t*>(a.data() + from),
                                         static_cast<const std::uint8_t*>(b.data() + from)};
            ReduceTurn turn;
            turn.operands = operands;
            turn.size_bytes = bytes;
            turn.result = expected.data();
            reference.reduce_turn(turn, type, op);
            turn.result = result.data();
            loops.reduce_turn(turn, type, op);
            CHECK(result == expected);
          }
          std::memcpy(result.data(), a.data() + from, bytes);
          expected = result;
          for (const Scale scale : {Scale(0.3), Scale(1.0, 3.0), Scale(0.7, 5.0)}) {
            reference.scale_in_place(expected.data(), count, type, scale);
            loops.scale_in_place(result.data(), count, type, scale);
            CHECK(result == expected);
          }
        }
      }
    }
  }
}

}  // namespace hvd::reduce_kernels_test
