// Scale: what elements are multiplied and divided by.
#pragma once

namespace hvd {

// An element becomes element * factor / divisor, in the type that elements are computed in: a quotient is not a product
// with the divisor's reciprocal, which may differ from it in the last bit (10 / 3 in float32) and is below one for
// 49 / 49.
struct Scale {
  constexpr Scale() = default;
  constexpr Scale(double by, double parts = 1.0)  // NOLINT(google-explicit-constructor): a factor is a scale
      : factor(by), divisor(parts) {}

  // Leaves elements as they are.
  [[nodiscard]] constexpr bool is_one() const { return factor == 1.0 && divisor == 1.0; }

  double factor = 1.0;
  double divisor = 1.0;  // a whole number
};

}  // namespace hvd
