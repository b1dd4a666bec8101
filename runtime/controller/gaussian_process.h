// GaussianProcess estimates a noisy function from a few dozen measurements at most, and how certain the estimate is.
// The autotuner uses it to choose its next setting. It follows Rasmussen and Williams, "Gaussian Processes for Machine
// Learning", MIT Press 2006, algorithm 2.1 (squared-exponential kernel, Cholesky). Its one length scale is the
// likeliest of a few (eq. 2.30). Pure; value type.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace hvd {

class GaussianProcess {
 public:
  using Point = std::array<double, 2>;  // each coordinate from 0 to 1

  struct Guess {
    double mean = 0.0;
    double deviation = 1.0;
  };

  // Values are taken relative to their mean and in units of their spread; `noise` is the standard deviation of a
  // measurement, in spreads.
  GaussianProcess(std::vector<Point> points, const std::vector<double>& values, double noise);

  // Returns the estimate in spreads from the mean.
  [[nodiscard]] Guess at(const Point& point) const;
  // Returns the expected improvement of a measurement at this point over `best`, where a lower value counts as none
  // (Jones, Schonlau and Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998).
  [[nodiscard]] double expected_improvement(const Point& point, double best) const;

 private:
  struct Fit {
    double length = 1.0;
    std::vector<double> factor;   // lower triangle of the Cholesky factor, row by row
    std::vector<double> weights;  // K^-1 y
    double likelihood = 0.0;      // logarithm of the likelihood
  };
  [[nodiscard]] Fit fit(double length, double noise) const;
  [[nodiscard]] std::vector<double> solve_lower(const std::vector<double>& factor, std::vector<double> b) const;

  std::vector<Point> points_;
  std::vector<double> values_;  // mean 0, spread 1
  Fit fit_;
};

}  // namespace hvd
