#include "runtime/algo/reduce_loops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "runtime/base/check.h"
#include "runtime/core/float16.h"

// These are plain loops that the compiler vectorises. The file is built with -O3, once for each instruction set that
// HVD_REDUCE_LOOPS names. All definitions are local to the file, because the linker could otherwise use code for a
// newer processor in place of another file's. An element type is described by how it is stored, the type in which it is
// computed, and the conversion between the two.
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
  // A NaN on either side is the result, whatever the order of the ranks.
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

// A bool is one byte: any value but 0 is true, and true is written as 1.
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

// The loop may be vectorised although `into` may be one of the inputs: element i is read before it is written, and no
// other element is read then.
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
// The processor converts eight elements at a time; a rest smaller than a block is left to the plain loop.
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

// Truncates toward zero; a value out of range becomes the nearest limit, and NaN becomes 0 (a plain conversion is
// undefined for these).
template <typename T>
T truncate(double value) {
  using Limits = std::numeric_limits<T>;
  // max() of a 64-bit type is not a double; the next power of two is one, and is the first value that is too large.
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
[[gnu::noinline]] void scale(Integer<T> /*element*/, void* data, std::size_t count, Scale by) {
  auto* values = static_cast<T*>(data);
  if (by.divisor == 1.0) {  // a division is several times as slow
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = truncate<T>(static_cast<double>(values[i]) * by.factor);
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = truncate<T>(static_cast<double>(values[i]) * by.factor / by.divisor);
  }
}

// Binary is a factor as mantissa * 2^exponent, where the mantissa is below 2^53 and odd, or 0.
struct Binary {
  std::int64_t mantissa = 0;
  int exponent = 0;
};

Binary binary_of(double factor) {
  Binary result;
  if (factor == 0 || !std::isfinite(factor)) {
    return result;
  }
  constexpr int kDigits = std::numeric_limits<double>::digits;
  result.mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(factor, &result.exponent), kDigits));
  result.exponent -= kDigits;
  while (result.mantissa % 2 == 0) {
    result.mantissa /= 2;
    ++result.exponent;
  }
  return result;
}

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using): only so no compiler warns

// Computes value * factor / divisor for a value that a double cannot hold, exactly, and truncated toward zero as above.
std::int64_t scale_large(std::int64_t value, const Binary& factor, std::int64_t divisor) {
  const bool is_negative = (value < 0) != (factor.mantissa < 0);
  const auto magnitude = [](std::int64_t number) {
    return number < 0 ? -static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  };
  Wide product = static_cast<Wide>(magnitude(value)) * magnitude(factor.mantissa);  // below 2^117
  const Wide limit = static_cast<Wide>(std::numeric_limits<std::int64_t>::max()) + (is_negative ? 1 : 0);
  constexpr int kWideBits = 128;
  if (factor.exponent > 0) {
    const bool is_lost = factor.exponent >= kWideBits || (product << factor.exponent) >> factor.exponent != product;
    product = is_lost ? ~static_cast<Wide>(0) : product << factor.exponent;
  }
  product /= static_cast<Wide>(divisor);
  if (factor.exponent < 0) {
    product = factor.exponent > -kWideBits ? product >> -factor.exponent : 0;
  }
  product = product < limit ? product : limit;
  return static_cast<std::int64_t>(is_negative ? -static_cast<std::uint64_t>(product)
                                               : static_cast<std::uint64_t>(product));
}

// Scales as for the other integers, but exactly beyond 2^53 too; an average is an integer division for all values.
[[gnu::noinline]] void scale(Integer<std::int64_t> /*element*/, void* data, std::size_t count, Scale by) {
  auto* values = static_cast<std::int64_t*>(data);
  const Binary factor = binary_of(by.factor);
  const auto divisor = static_cast<std::int64_t>(by.divisor);
  constexpr int kMaxShift = 30;
  constexpr std::int64_t kMaxDivisor = std::int64_t{1} << 32U;
  if (factor.mantissa == 1 && factor.exponent <= 0 && factor.exponent >= -kMaxShift && divisor <= kMaxDivisor) {
    const std::int64_t parts = divisor << -factor.exponent;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] /= parts;
    }
    return;
  }
  constexpr std::int64_t kExact = std::int64_t{1} << std::numeric_limits<double>::digits;
  const bool is_finite = std::isfinite(by.factor);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_small = values[i] >= -kExact && values[i] <= kExact;
    values[i] = is_small || !is_finite ? truncate<std::int64_t>(static_cast<double>(values[i]) * by.factor / by.divisor)
                                       : scale_large(values[i], factor, divisor);
  }
}

[[gnu::noinline]] void scale(Bool /*element*/, void* data, std::size_t count, Scale by) {
  auto* values = static_cast<std::uint8_t*>(data);
  const bool stays = std::trunc(by.factor / by.divisor) != 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = values[i] != 0 && stays ? 1 : 0;
  }
}

template <typename Element>
void scale(Element /*of floating type*/, void* data, std::size_t count, Scale by) {
  using Value = typename Element::Value;
  const auto factor = static_cast<Value>(by.factor);
  const auto divisor = static_cast<Value>(by.divisor);
  if (divisor == 1) {
    return apply_any<Element>(data, data, data, count, [factor](Value value, Value) { return value * factor; });
  }
  apply_any<Element>(data, data, data, count,
                     [factor, divisor](Value value, Value) { return value * factor / divisor; });
}

// ---- a turn ----

// The bytes of each run before the next run's turn. They are a few cache lines, so that the processor works on some
// lines while others come from another core's cache. With more than 1 KiB it does not look that far ahead.
constexpr std::size_t kUnitBytes = 256;

// The bytes of a reduction that runs without copies: they stay in a core's first-level cache while all operands are
// added and the result is scaled.
constexpr std::size_t kAloneBytes = 8U << 10U;

// Copies this many units, or as many as are left; returns the new position.
std::size_t copy_units(const CopyRun& run, std::size_t at, std::size_t units) {
  for (; units > 0 && at + kUnitBytes <= run.size_bytes; --units, at += kUnitBytes) {
    std::memcpy(run.to + at, run.from + at, kUnitBytes);
  }
  return at;
}

void copy_rest(const CopyRun& run, std::size_t at) {
  if (at < run.size_bytes) {
    std::memcpy(run.to + at, run.from + at, run.size_bytes - at);
  }
}

template <typename Element, typename Operation>
inline void reduce_run(const ReduceTurn& turn, std::size_t at, std::size_t size_bytes, Operation operation) {
  const std::size_t count = size_bytes / sizeof(typename Element::Stored);
  std::uint8_t* result = turn.result + at;
  if (turn.operands.size() == 1) {
    std::memmove(result, turn.operands[0] + at, size_bytes);
  } else {
    apply_any<Element>(result, turn.operands[0] + at, turn.operands[1] + at, count, operation);
  }
  for (std::size_t i = 2; i < turn.operands.size(); ++i) {
    apply_any<Element>(result, result, turn.operands[i] + at, count, operation);
  }
  if (!turn.scale.is_one()) {
    scale(Element{}, result, count, turn.scale);
  }
  if (turn.output != nullptr) {
    std::memcpy(turn.output + at, result, size_bytes);
  }
}

template <typename Element, typename Operation>
void run_turn(const ReduceTurn& turn, Operation operation) {
  std::size_t published = 0;
  std::size_t reduced = 0;
  std::size_t taken = 0;
  // For each unit of its own share, a rank copies a unit of each other rank's share.
  const std::size_t shares = turn.operands.size() - 1;
  const bool has_copies = (turn.published.size_bytes | turn.taken.size_bytes) != 0;
  for (; has_copies && reduced + kUnitBytes <= turn.size_bytes; reduced += kUnitBytes) {
    published = copy_units(turn.published, published, shares);
    reduce_run<Element>(turn, reduced, kUnitBytes, operation);
    taken = copy_units(turn.taken, taken, shares);
  }
  while (reduced < turn.size_bytes) {
    const std::size_t size_bytes = std::min(kAloneBytes, turn.size_bytes - reduced);
    reduce_run<Element>(turn, reduced, size_bytes, operation);
    reduced += size_bytes;
  }
  copy_rest(turn.published, published);
  copy_rest(turn.taken, taken);
}

// ---- by type ----

template <typename Call>
void with_element(Dtype dtype, const Call& call) {
  switch (dtype) {
    case Dtype::kUint8:
      return call(Integer<std::uint8_t>());
    case Dtype::kInt8:
      return call(Integer<std::int8_t>());
    case Dtype::kUint16:
      return call(Integer<std::uint16_t>());
    case Dtype::kInt16:
      return call(Integer<std::int16_t>());
    case Dtype::kInt32:
      return call(Integer<std::int32_t>());
    case Dtype::kInt64:
      return call(Integer<std::int64_t>());
    case Dtype::kFloat16:
      return call(Float16());
    case Dtype::kBfloat16:
      return call(Bfloat16());
    case Dtype::kFloat32:
      return call(Floating<float>());
    case Dtype::kFloat64:
      return call(Floating<double>());
    case Dtype::kBool:
      return call(Bool());
  }
}

void reduce_turn(const ReduceTurn& turn, Dtype dtype, ReduceOp op) {
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    using Value = typename Element::Value;
    switch (op) {
      case ReduceOp::kSum:
        return run_turn<Element>(turn, [](Value a, Value b) { return Element::add(a, b); });
      case ReduceOp::kMin:
        return run_turn<Element>(turn, [](Value a, Value b) { return Element::min(a, b); });
      case ReduceOp::kMax:
        return run_turn<Element>(turn, [](Value a, Value b) { return Element::max(a, b); });
      case ReduceOp::kProduct:
        return run_turn<Element>(turn, [](Value a, Value b) { return Element::multiply(a, b); });
      case ReduceOp::kAverage:
      case ReduceOp::kAdasum:
        break;
    }
    HVD_CHECK(op != ReduceOp::kAverage && op != ReduceOp::kAdasum);
  });
}

void scale_in_place(void* data, std::size_t count, Dtype dtype, Scale by) {
  with_element(dtype, [&](auto element) { scale(element, data, count, by); });
}

}  // namespace

#define HVD_NAME_OF(loops) #loops
#define HVD_LOOPS_FOR(loops)                                  \
  ReduceLoops reduce_loops_##loops() {                        \
    return {HVD_NAME_OF(loops), reduce_turn, scale_in_place}; \
  }
#define HVD_LOOPS(loops) HVD_LOOPS_FOR(loops)
HVD_LOOPS(HVD_REDUCE_LOOPS)

}  // namespace hvd
