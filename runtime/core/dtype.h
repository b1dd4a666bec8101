// Element types and reduction operators. Their numbers are those of hvd.h and are sent between ranks, so they never
// change.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd {

enum class Dtype : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBfloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
  kBool = 10,
};
inline constexpr int kDtypeCount = 11;

enum class ReduceOp : std::uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };

// Returns the operator that combines two values: an average adds them, and is divided once at the end.
constexpr ReduceOp combining_op(ReduceOp op) {
  return op == ReduceOp::kAverage ? ReduceOp::kSum : op;
}

// The bytes of one element.
constexpr std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kInt8:
    case Dtype::kBool:
      return 1;
    case Dtype::kUint16:
    case Dtype::kInt16:
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2;
    case Dtype::kInt32:
    case Dtype::kFloat32:
      return 4;
    case Dtype::kInt64:
    case Dtype::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool is_floating(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64;
}

// The type's name as Python spells it, such as "float32".
constexpr const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
      return "uint8";
    case Dtype::kInt8:
      return "int8";
    case Dtype::kUint16:
      return "uint16";
    case Dtype::kInt16:
      return "int16";
    case Dtype::kInt32:
      return "int32";
    case Dtype::kInt64:
      return "int64";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat64:
      return "float64";
    case Dtype::kBool:
      return "bool";
  }
  return "?";
}

}  // namespace hvd
