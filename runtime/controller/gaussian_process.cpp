#include "runtime/controller/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "runtime/base/check.h"

namespace hvd {
namespace {

// The candidate length scales: the distance along a coordinate at which values are still correlated.
constexpr double kLengths[] = {0.15, 0.3, 0.6, 1.2};
// This keeps the matrix positive definite if points coincide and there is no noise.
constexpr double kJitter = 1e-8;

double kernel(const GaussianProcess::Point& a, const GaussianProcess::Point& b, double length) {
  const double squares = (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]);
  return std::exp(-squares / (2 * length * length));
}

std::size_t place(std::size_t row, std::size_t column) {
  return row * (row + 1) / 2 + column;
}

std::vector<double> standardised(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double square = 0;
  for (const double value : values) {
    square += (value - mean) * (value - mean);
  }
  const double spread = square > 0 ? std::sqrt(square / n) : 1.0;
  std::vector<double> all;
  for (const double value : values) {
    all.push_back((value - mean) / spread);
  }
  return all;
}

}  // namespace

GaussianProcess::GaussianProcess(std::vector<Point> points, const std::vector<double>& values, double noise)
    : points_(std::move(points)) {
  HVD_CHECK(!points_.empty() && points_.size() == values.size());
  values_ = standardised(values);
  for (const double length : kLengths) {
    Fit candidate = fit(length, noise);
    if (fit_.factor.empty() || candidate.likelihood > fit_.likelihood) {
      fit_ = std::move(candidate);
    }
  }
}

GaussianProcess::Fit GaussianProcess::fit(double length, double noise) const {
  const std::size_t n = points_.size();
  Fit fit;
  fit.length = length;
  fit.factor.resize(place(n, 0));
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      double rest = kernel(points_[row], points_[column], length) + (row == column ? noise * noise + kJitter : 0.0);
      for (std::size_t k = 0; k < column; ++k) {
        rest -= fit.factor[place(row, k)] * fit.factor[place(column, k)];
      }
      fit.factor[place(row, column)] =
          row == column ? std::sqrt(std::max(rest, kJitter)) : rest / fit.factor[place(column, column)];
    }
  }
  std::vector<double> half = solve_lower(fit.factor, values_);
  fit.likelihood = -0.5 * std::inner_product(half.begin(), half.end(), half.begin(), 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    fit.likelihood -= std::log(fit.factor[place(i, i)]);
  }
  fit.weights = std::move(half);
  for (std::size_t i = n; i-- > 0;) {  // solves with the transpose, from the end
    for (std::size_t k = i + 1; k < n; ++k) {
      fit.weights[i] -= fit.factor[place(k, i)] * fit.weights[k];
    }
    fit.weights[i] /= fit.factor[place(i, i)];
  }
  return fit;
}

std::vector<double> GaussianProcess::solve_lower(const std::vector<double>& factor, std::vector<double> b) const {
  for (std::size_t i = 0; i < b.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      b[i] -= factor[place(i, k)] * b[k];
    }
    b[i] /= factor[place(i, i)];
  }
  return b;
}

GaussianProcess::Guess GaussianProcess::at(const Point& point) const {
  std::vector<double> near;
  for (const Point& known : points_) {
    near.push_back(kernel(point, known, fit_.length));
  }
  Guess guess;
  guess.mean = std::inner_product(near.begin(), near.end(), fit_.weights.begin(), 0.0);
  const std::vector<double> half = solve_lower(fit_.factor, std::move(near));
  const double variance = 1.0 - std::inner_product(half.begin(), half.end(), half.begin(), 0.0);
  guess.deviation = std::sqrt(std::max(variance, 0.0));
  return guess;
}

double GaussianProcess::expected_improvement(const Point& point, double best) const {
  const Guess guess = at(point);
  const double gain = guess.mean - best;
  if (guess.deviation <= 0.0) {
    return std::max(gain, 0.0);
  }
  const double z = gain / guess.deviation;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
  const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
  return gain * below + guess.deviation * density;
}

}  // namespace hvd
