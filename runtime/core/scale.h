// Scale is the factor and divisor of a tensor's elements.
#pragma once

namespace hvd {

// An element becomes element * factor / divisor, in the type in which elements are computed. Multiplying by the
// divisor's reciprocal instead may differ in the last bit (10 / 3 in float32), and gives less than one for 49 / 49.
struct Scale {
  constexpr Scale() = default;
  constexpr Scale(double by, double parts = 1.0)  // NOLINT(google-explicit-constructor): a factor is a scale
      : factor(by), divisor(parts) {}

  // True if it leaves elements unchanged.
  [[nodiscard]] constexpr bool is_one() const { return factor == 1.0 && divisor == 1.0; }

  double factor = 1.0;
  double divisor = 1.0;  // a whole number
};

}  // namespace hvd
