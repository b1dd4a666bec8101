#include "runtime/algo/reduce_kernels.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/algo/float16.h"
#include "runtime/base/check.h"

// Plain loops that the compiler vectorises (this file is built with -O3). An element type is described by three things:
// how it is stored, what it is computed in, and how it gets from one to the other.
namespace hvd {
namespace {

// Integers are computed in their unsigned type, at least 32 bits wide, so that they wrap and never overflow.
template <typename T>
struct Integer {
  using Stored = T;
  using Value = T;
  using Wrapping = std::conditional_t<(sizeof(T) < sizeof(std::uint32_t)), std::uint32_t, std::make_unsigned_t<T>>;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
  static Value add(Value a, Value b) { return static_cast<Value>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b)); }
  static Value multiply(Value a, Value b) {
    return static_cast<Value>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
  static Value min(Value a, Value b) { return b < a ? b : a; }
  static Value max(Value a, Value b) { return a < b ? b : a; }
};

template <typename T>
struct Floating {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
  static Value add(Value a, Value b) { return a + b; }
  static Value multiply(Value a, Value b) { return a * b; }
  // A NaN of either side is the result, whatever the order of the ranks.
  static Value min(Value a, Value b) { return ((b < a) | (b != b)) ? b : a; }
  static Value max(Value a, Value b) { return ((a < b) | (b != b)) ? b : a; }
};

struct Float16 : Floating<float> {
  using Stored = std::uint16_t;
  static float load(Stored stored) { return float16_to_float(stored); }
  static Stored store(float value) { return float_to_float16(value); }
};

struct Bfloat16 : Floating<float> {
  using Stored = std::uint16_t;
  static float load(Stored stored) { return bfloat16_to_float(stored); }
  static Stored store(float value) { return float_to_bfloat16(value); }
};

// One byte; what is not 0 is true, and true is written as 1.
struct Bool {
  using Stored = std::uint8_t;
  using Value = bool;
  static Value load(Stored stored) { return stored != 0; }
  static Stored store(Value value) { return value ? 1 : 0; }
  static Value add(Value a, Value b) { return a | b; }
  static Value multiply(Value a, Value b) { return a & b; }
  static Value min(Value a, Value b) { return a & b; }
  static Value max(Value a, Value b) { return a | b; }
};

template <typename Element, typename Operation>
void apply(void* into, const void* from, std::size_t count, Operation operation) {
  using Stored = typename Element::Stored;
  auto* __restrict a = static_cast<Stored*>(into);
  const auto* __restrict b = static_cast<const Stored*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = Element::store(operation(Element::load(a[i]), Element::load(b[i])));
  }
}

template <typename Element>
void reduce(void* into, const void* from, std::size_t count, ReduceOp op) {
  using Value = typename Element::Value;
  switch (op) {
    case ReduceOp::kSum:
      return apply<Element>(into, from, count, [](Value a, Value b) { return Element::add(a, b); });
    case ReduceOp::kMin:
      return apply<Element>(into, from, count, [](Value a, Value b) { return Element::min(a, b); });
    case ReduceOp::kMax:
      return apply<Element>(into, from, count, [](Value a, Value b) { return Element::max(a, b); });
    case ReduceOp::kProduct:
      return apply<Element>(into, from, count, [](Value a, Value b) { return Element::multiply(a, b); });
    case ReduceOp::kAverage:
      break;
  }
  HVD_CHECK(op != ReduceOp::kAverage);
}

// Toward zero; what the type cannot hold becomes its nearest value, and NaN 0 (a plain conversion is undefined there).
template <typename T>
T truncate(double value) {
  using Limits = std::numeric_limits<T>;
  // max() of a 64-bit type is not a double; the next power of two is, and is the first value too large.
  const double too_large = std::ldexp(1.0, Limits::digits);
  if (value >= too_large) {
    return Limits::max();
  }
  if (value <= static_cast<double>(Limits::min())) {
    return Limits::min();
  }
  return value == value ? static_cast<T>(value) : T{0};
}

template <typename T>
void scale_integers(void* data, std::size_t count, double factor) {
  auto* values = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = truncate<T>(static_cast<double>(values[i]) * factor);
  }
}

template <typename Element>
void scale_floats(void* data, std::size_t count, double factor) {
  using Value = typename Element::Value;
  auto* values = static_cast<typename Element::Stored*>(data);
  const auto by = static_cast<Value>(factor);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = Element::store(Element::load(values[i]) * by);
  }
}

}  // namespace

void reduce_into(void* into, const void* from, std::size_t count, Dtype dtype, ReduceOp op) {
  switch (dtype) {
    case Dtype::kUint8:
      return reduce<Integer<std::uint8_t>>(into, from, count, op);
    case Dtype::kInt8:
      return reduce<Integer<std::int8_t>>(into, from, count, op);
    case Dtype::kUint16:
      return reduce<Integer<std::uint16_t>>(into, from, count, op);
    case Dtype::kInt16:
      return reduce<Integer<std::int16_t>>(into, from, count, op);
    case Dtype::kInt32:
      return reduce<Integer<std::int32_t>>(into, from, count, op);
    case Dtype::kInt64:
      return reduce<Integer<std::int64_t>>(into, from, count, op);
    case Dtype::kFloat16:
      return reduce<Float16>(into, from, count, op);
    case Dtype::kBfloat16:
      return reduce<Bfloat16>(into, from, count, op);
    case Dtype::kFloat32:
      return reduce<Floating<float>>(into, from, count, op);
    case Dtype::kFloat64:
      return reduce<Floating<double>>(into, from, count, op);
    case Dtype::kBool:
      return reduce<Bool>(into, from, count, op);
  }
}

void scale_in_place(void* data, std::size_t count, Dtype dtype, double factor) {
  if (factor == 1.0) {
    return;
  }
  switch (dtype) {
    case Dtype::kUint8:
      return scale_integers<std::uint8_t>(data, count, factor);
    case Dtype::kInt8:
      return scale_integers<std::int8_t>(data, count, factor);
    case Dtype::kUint16:
      return scale_integers<std::uint16_t>(data, count, factor);
    case Dtype::kInt16:
      return scale_integers<std::int16_t>(data, count, factor);
    case Dtype::kInt32:
      return scale_integers<std::int32_t>(data, count, factor);
    case Dtype::kInt64:
      return scale_integers<std::int64_t>(data, count, factor);
    case Dtype::kFloat16:
      return scale_floats<Float16>(data, count, factor);
    case Dtype::kBfloat16:
      return scale_floats<Bfloat16>(data, count, factor);
    case Dtype::kFloat32:
      return scale_floats<Floating<float>>(data, count, factor);
    case Dtype::kFloat64:
      return scale_floats<Floating<double>>(data, count, factor);
    case Dtype::kBool: {
      auto* values = static_cast<std::uint8_t*>(data);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = values[i] != 0 && std::trunc(factor) != 0.0 ? 1 : 0;
      }
      return;
    }
  }
}

}  // namespace hvd
