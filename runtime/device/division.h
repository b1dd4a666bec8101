// Division of many float32 numbers by one whole number, with the results of IEEE division, bit for bit, in fewer and
// simpler instructions than a GPU's own division takes.
//
// Nothing here needs a GPU. Value types and pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/device/host_device.h"

namespace hvd {

// A quotient is the product with the reciprocal, corrected twice by its remainder. The first correction leaves an error
// of less than one unit in the last place; a correction of such a quotient by the correctly rounded reciprocal rounds
// correctly (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990, theorem
// on division), as long as no step leaves the normal numbers.
class FloatDivision {
 public:
  HVD_HD explicit FloatDivision(float divisor)
      : divisor_(divisor), reciprocal_(1.0F / divisor), is_usual_(divisor >= 2.0F && divisor <= kMostDivisor) {}

  // True if quotient() is right for this number: a zero, or normal and not too small. Infinities and NaN are left to
  // the division itself.
  [[nodiscard]] HVD_HD bool takes(float number) const {
    const std::uint32_t size = bits(number) & ~kSign;
    return is_usual_ && (size - kLeast < kInfinity - kLeast || size == 0);
  }

  // Divides a number that it takes.
  [[nodiscard]] HVD_HD float quotient(float number) const {
    float quotient = number * reciprocal_;
    HVD_UNROLL
    for (int correction = 0; correction < 2; ++correction) {
      const float remainder = std::fma(-quotient, divisor_, number);
      quotient = std::fma(remainder, reciprocal_, quotient);
    }
    // A correction takes the sign from a zero.
    return std::bit_cast<float>((bits(quotient) & ~kSign) | (bits(number) & kSign));
  }

 private:
  static constexpr std::uint32_t kSign = 0x80000000U;
  static constexpr std::uint32_t kInfinity = 0x7F800000U;
  // 2^-96: a remainder then has bits down to 2^-143 at least, which a float32 can hold.
  static constexpr std::uint32_t kLeast = (127U - 96U) << 23U;
  static constexpr float kMostDivisor = 16777216.0F;  // 2^24

  HVD_HD static std::uint32_t bits(float number) { return std::bit_cast<std::uint32_t>(number); }

  float divisor_;
  float reciprocal_;
  bool is_usual_;
};

}  // namespace hvd
