// Conversions of float16 and bfloat16 (as 16-bit patterns) to float32 and back, rounding to nearest even. They have no
// branches and tables, so that the compiler can vectorise loops over them. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace hvd {

// Converts IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Exact for every pattern; NaN keeps its
// payload.
inline float float16_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t rest = half & 0x7FFFU;
  // Exponent and fraction move to float32's place, and adding 112 to the exponent moves the bias from 15 to 127. For
  // infinity and NaN the exponent is set to all ones instead.
  const std::uint32_t all_ones = rest >= 0x7C00U ? 0x7F800000U : 0U;
  const std::uint32_t normal = ((rest << 13U) + (112U << 23U)) | all_ones;
  // A subnormal is fraction * 2^-24. It is computed by an exact sum: (0.5 + fraction * 2^-24) - 0.5. No operand is a
  // subnormal float32, so the processor's flush-to-zero modes change nothing.
  const float small = std::bit_cast<float>((126U << 23U) | rest) - 0.5F;
  const std::uint32_t bits = rest < 0x0400U ? std::bit_cast<std::uint32_t>(small) : normal;
  return std::bit_cast<float>(sign | bits);
}

inline std::uint16_t float_to_float16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t rest = bits & 0x7FFFFFFFU;
  // For a normal number, the bias is lowered by 112 and 13 fraction bits are dropped. Adding half of the last kept
  // place minus one, plus one more if that place is odd, rounds to nearest even. A carry out of the fraction raises the
  // exponent, up to infinity.
  const std::uint32_t normal = (rest - (112U << 23U) + 0xFFFU + ((rest >> 13U) & 1U)) >> 13U;
  // Below 2^-14 the value is added to 0.5, whose last place is 2^-24, the smallest float16; the processor rounds it to
  // even.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5F) - (126U << 23U);
  std::uint32_t half = rest < (113U << 23U) ? small : normal;
  // 65520 lies half way between the largest float16 and the next value above it; from there on the result is infinity.
  half = rest >= 0x477FF000U ? 0x7C00U : half;
  half = rest > 0x7F800000U ? (0x7E00U | ((rest >> 13U) & 0x3FFU)) : half;  // NaN stays NaN, made quiet
  return static_cast<std::uint16_t>(sign | half);
}

// A bfloat16 is the upper half of a float32.
inline float bfloat16_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

inline std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet_nan = (bits >> 16U) | 0x40U;  // rounding could turn a NaN into infinity
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded);
}

}  // namespace hvd
