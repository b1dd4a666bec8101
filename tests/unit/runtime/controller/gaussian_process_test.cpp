#include "runtime/controller/gaussian_process.h"

#include <cmath>

#include <doctest/doctest.h>

namespace hvd::gaussian_process_test {

TEST_CASE("without noise it goes through what was measured, and is sure there") {
  const std::vector<GaussianProcess::Point> points = {{0, 0}, {0.5, 0.5}, {1, 0.2}};
  const GaussianProcess guess(points, {10, 30, 20}, 0.0);
  // Mean 20, spread sqrt(200/3).
  const double spread = std::sqrt(200.0 / 3);
  CHECK(guess.at(points[0]).mean == doctest::Approx(-10 / spread).epsilon(1e-4));
  CHECK(guess.at(points[1]).mean == doctest::Approx(10 / spread).epsilon(1e-4));
  CHECK(guess.at(points[2]).mean == doctest::Approx(0).epsilon(1e-4));
  for (const auto& point : points) {
    CHECK(guess.at(point).deviation < 0.01);
  }
}

TEST_CASE("far from what was measured it is the mean, and not sure") {
  const GaussianProcess guess({{0, 0}, {0.01, 0}}, {1, 3}, 0.1);
  const auto far = guess.at({1, 1});
  CHECK(std::fabs(far.mean) < 0.7);
  CHECK(far.deviation > 0.5);
  CHECK(guess.at({0, 0}).deviation < far.deviation);
}

TEST_CASE("with noise it lies between what was measured twice at one place") {
  const GaussianProcess guess({{0.5, 0.5}, {0.5, 0.5}, {0, 0}}, {4, 8, 0}, 0.5);
  const double there = guess.at({0.5, 0.5}).mean;
  CHECK(there > 0.0);
  CHECK(there < (8 - 4) / std::sqrt(32.0 / 3));
}

TEST_CASE("equal values and a single one are no trouble") {
  const GaussianProcess one({{0.5, 0.5}}, {7}, 0.8);
  CHECK(one.at({0.5, 0.5}).mean == 0.0);
  const GaussianProcess equal({{0, 0}, {1, 1}}, {7, 7}, 0.0);
  CHECK(equal.at({0.5, 0.5}).mean == 0.0);
  CHECK(std::isfinite(equal.expected_improvement({0.5, 0.5}, 0.0)));
}

TEST_CASE("improvement is expected where it is better or less known, and never less than nothing") {
  const GaussianProcess guess({{0, 0.5}, {0.2, 0.5}, {0.4, 0.5}}, {1, 2, 3}, 0.0);
  const double best = guess.at({0.4, 0.5}).mean;
  CHECK(guess.expected_improvement({0.5, 0.5}, best) > guess.expected_improvement({0.1, 0.5}, best));
  CHECK(guess.expected_improvement({0.4, 0.5}, best) < 0.01);
  for (double x = 0; x <= 1; x += 0.1) {
    CHECK(guess.expected_improvement({x, x}, best) >= 0.0);
  }
}

}  // namespace hvd::gaussian_process_test
