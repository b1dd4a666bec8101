#include "runtime/algo/reduce_loops.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "runtime/base/check.h"
#include "runtime/core/float16.h"

// Plain loops that the compiler vectorises: this file is built with -O3, and several times, for the processors that
// HVD_REDUCE_LOOPS names. All that is defined here is local to the file, lest the linker take what is made for a newer
// processor in another file's place. An element type is described by three things: how it is stored, what it is
// computed in, and how it gets from one to the other.
#if !defined(HVD_REDUCE_LOOPS)
#define HVD_REDUCE_LOOPS portable
#endif
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

// Vectorised although `into` may be one of the others: element i is read before it is written, and no other is.
#if defined(__clang__)
#define HVD_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define HVD_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

template <typename Element, typename Operation>
void apply(void* into, const void* first, const void* second, std::size_t count, Operation operation) {
  using Stored = typename Element::Stored;
  auto* result = static_cast<Stored*>(into);
  const auto* a = static_cast<const Stored*>(first);
  const auto* b = static_cast<const Stored*>(second);
  HVD_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = Element::store(operation(Element::load(a[i]), Element::load(b[i])));
  }
}

#if defined(__F16C__)
// The processor converts eight at a time; what does not fill a block is left to the plain loop.
constexpr std::size_t kBlock = 64;

void load_block(float* to, const std::uint16_t* from) {
  for (std::size_t i = 0; i < kBlock; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
}
void store_block(std::uint16_t* to, const float* from) {
  for (std::size_t i = 0; i < kBlock; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
}

template <typename Operation>
std::size_t apply_blocks(std::uint16_t* into, const std::uint16_t* first, const std::uint16_t* second,
                         std::size_t count, Operation operation) {
  alignas(64) float a[kBlock];
  alignas(64) float b[kBlock];
  std::size_t done = 0;
  for (; done + kBlock <= count; done += kBlock) {
    load_block(a, first + done);
    load_block(b, second + done);
    for (std::size_t i = 0; i < kBlock; ++i) {
      a[i] = operation(a[i], b[i]);
    }
    store_block(into + done, a);
  }
  return done;
}

template <typename Operation>
void apply_float16(void* into, const void* first, const void* second, std::size_t count, Operation operation) {
  auto* result = static_cast<std::uint16_t*>(into);
  const auto* a = static_cast<const std::uint16_t*>(first);
  const auto* b = static_cast<const std::uint16_t*>(second);
  const std::size_t done = apply_blocks(result, a, b, count, operation);
  apply<Float16>(result + done, a + done, b + done, count - done, operation);
}
#else
template <typename Operation>
void apply_float16(void* into, const void* first, const void* second, std::size_t count, Operation operation) {
  apply<Float16>(into, first, second, count, operation);
}
#endif

template <typename Element, typename Operation>
void apply_any(void* into, const void* first, const void* second, std::size_t count, Operation operation) {
  if constexpr (std::is_same_v<Element, Float16>) {
    apply_float16(into, first, second, count, operation);
  } else {
    apply<Element>(into, first, second, count, operation);
  }
}

template <typename Element>
void reduce(void* into, const void* first, const void* second, std::size_t count, ReduceOp op) {
  using Value = typename Element::Value;
  switch (op) {
    case ReduceOp::kSum:
      return apply_any<Element>(into, first, second, count, [](Value a, Value b) { return Element::add(a, b); });
    case ReduceOp::kMin:
      return apply_any<Element>(into, first, second, count, [](Value a, Value b) { return Element::min(a, b); });
    case ReduceOp::kMax:
      return apply_any<Element>(into, first, second, count, [](Value a, Value b) { return Element::max(a, b); });
    case ReduceOp::kProduct:
      return apply_any<Element>(into, first, second, count, [](Value a, Value b) { return Element::multiply(a, b); });
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      break;
  }
  HVD_CHECK(op != ReduceOp::kAverage && op != ReduceOp::kAdasum);
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
void scale_integers(void* data, std::size_t count, Scale scale) {
  auto* values = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = truncate<T>(static_cast<double>(values[i]) * scale.factor / scale.divisor);
  }
}

template <typename Element>
void scale_floats(void* data, std::size_t count, Scale scale) {
  using Value = typename Element::Value;
  const auto by = static_cast<Value>(scale.factor);
  const auto parts = static_cast<Value>(scale.divisor);
  if (parts == 1) {  // a division is several times as slow
    return apply_any<Element>(data, data, data, count, [by](Value value, Value) { return value * by; });
  }
  apply_any<Element>(data, data, data, count, [by, parts](Value value, Value) { return value * by / parts; });
}

void reduce_two(void* into, const void* first, const void* second, std::size_t count, Dtype dtype, ReduceOp op) {
  switch (dtype) {
    case Dtype::kUint8:
      return reduce<Integer<std::uint8_t>>(into, first, second, count, op);
    case Dtype::kInt8:
      return reduce<Integer<std::int8_t>>(into, first, second, count, op);
    case Dtype::kUint16:
      return reduce<Integer<std::uint16_t>>(into, first, second, count, op);
    case Dtype::kInt16:
      return reduce<Integer<std::int16_t>>(into, first, second, count, op);
    case Dtype::kInt32:
      return reduce<Integer<std::int32_t>>(into, first, second, count, op);
    case Dtype::kInt64:
      return reduce<Integer<std::int64_t>>(into, first, second, count, op);
    case Dtype::kFloat16:
      return reduce<Float16>(into, first, second, count, op);
    case Dtype::kBfloat16:
      return reduce<Bfloat16>(into, first, second, count, op);
    case Dtype::kFloat32:
      return reduce<Floating<float>>(into, first, second, count, op);
    case Dtype::kFloat64:
      return reduce<Floating<double>>(into, first, second, count, op);
    case Dtype::kBool:
      return reduce<Bool>(into, first, second, count, op);
  }
}

void scale_in_place(void* data, std::size_t count, Dtype dtype, Scale scale) {
  switch (dtype) {
    case Dtype::kUint8:
      return scale_integers<std::uint8_t>(data, count, scale);
    case Dtype::kInt8:
      return scale_integers<std::int8_t>(data, count, scale);
    case Dtype::kUint16:
      return scale_integers<std::uint16_t>(data, count, scale);
    case Dtype::kInt16:
      return scale_integers<std::int16_t>(data, count, scale);
    case Dtype::kInt32:
      return scale_integers<std::int32_t>(data, count, scale);
    case Dtype::kInt64:
      return scale_integers<std::int64_t>(data, count, scale);
    case Dtype::kFloat16:
      return scale_floats<Float16>(data, count, scale);
    case Dtype::kBfloat16:
      return scale_floats<Bfloat16>(data, count, scale);
    case Dtype::kFloat32:
      return scale_floats<Floating<float>>(data, count, scale);
    case Dtype::kFloat64:
      return scale_floats<Floating<double>>(data, count, scale);
    case Dtype::kBool: {
      auto* values = static_cast<std::uint8_t*>(data);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = values[i] != 0 && std::trunc(scale.factor / scale.divisor) != 0.0 ? 1 : 0;
      }
      return;
    }
  }
}

}  // namespace

#define HVD_NAME_OF(loops) #loops
#define HVD_LOOPS_FOR(loops)                                 \
  ReduceLoops reduce_loops_##loops() {                       \
    return {HVD_NAME_OF(loops), reduce_two, scale_in_place}; \
  }
#define HVD_LOOPS(loops) HVD_LOOPS_FOR(loops)
HVD_LOOPS(HVD_REDUCE_LOOPS)

}  // namespace hvd
