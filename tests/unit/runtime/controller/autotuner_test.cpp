#include "runtime/controller/autotuner.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <doctest/doctest.h>

namespace hvd::autotuner_test {
namespace {

constexpr TunedSetting kFirst{128U << 20U, std::chrono::milliseconds(1)};

// A job whose steps move a megabyte each in as long as `us_of` says of the setting.
template <typename UsOf>
struct Job {
  Autotuner tuner;
  UsOf us_of;
  TunedSetting setting = kFirst;
  TimePoint now{std::chrono::hours(1)};
  std::vector<Autotuner::Trial> trials{};
  int steps = 0;
  bool is_done = false;

  void step() {
    now += std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::micro>(us_of(setting)));
    for (const char* name : {"a", "b"}) {
      tuner.note(name, 500'000, now);
      Autotuner::News news = tuner.take_news();
      setting = news.setting.value_or(setting);
      trials.insert(trials.end(), news.trials.begin(), news.trials.end());
      is_done = is_done || news.is_done;
    }
    ++steps;
  }
  void run(int limit = 10'000) {
    while (!is_done && steps < limit) {
      step();
    }
  }
};

double log2_of(double value) {
  return std::log2(value);
}

// Best at 4 MiB and 200 us.
double hill(const TunedSetting& setting) {
  const double fusion = log2_of(static_cast<double>(setting.fusion_bytes) / (4U << 20U));
  const double window = log2_of(std::chrono::duration<double, std::micro>(setting.window).count() / 200);
  return 1000 * (1 + 0.1 * fusion * fusion + 0.1 * window * window);
}

AutotuneOptions options_of(int samples, double noise = 0.2) {
  AutotuneOptions options;
  options.is_on = true;
  options.max_samples = samples;
  options.noise = noise;
  return options;
}

}  // namespace

TEST_CASE("it finds settings near the best, and stays with the best that it tried") {
  Job<double (*)(const TunedSetting&)> job{Autotuner(options_of(20), kFirst), hill};
  job.run();
  REQUIRE(job.is_done);
  REQUIRE(job.trials.size() == 21);  // and the one that stays
  CHECK(job.trials.front().setting == kFirst);
  CHECK(job.setting == job.trials.back().setting);
  CHECK(hill(job.setting) < 1300);  // the first one's is 4,000
  const int steps = job.steps;
  job.step();
  CHECK(job.steps == steps + 1);
  CHECK(job.trials.size() == 21);
  CHECK(job.tuner.is_done());
}

TEST_CASE("noise does not lead it away from what is clearly better") {
  std::mt19937 random(3);
  std::lognormal_distribution<double> noise(0.0, 0.2);
  const auto us_of = [&](const TunedSetting& setting) { return hill(setting) * noise(random); };
  Job<decltype(us_of)> job{Autotuner(options_of(25, 0.5), kFirst), us_of};
  job.run();
  REQUIRE(job.is_done);
  CHECK(hill(job.setting) < 2200);
}

TEST_CASE("warm-up is thrown away, and a setting's score is the median of five samples of some steps") {
  AutotuneOptions options = options_of(1);
  options.warmup_samples = 2;
  options.steps_per_sample = 3;
  int step = 0;
  const auto us_of = [&](const TunedSetting&) {
    ++step;
    return step < 34 ? 1e6 : (step - 34) / 3 == 2 ? 1e5 : 1000.0;  // slow at first, and one sample later
  };
  Job<decltype(us_of)> job{Autotuner(options, kFirst), us_of};
  job.run(200);
  REQUIRE(job.is_done);
  // A step to begin with, and that for each of the three rounds of 15.
  CHECK(job.steps == 1 + 3 * 16);
  CHECK(job.trials.front().score == doctest::Approx(1000.0));
  CHECK(job.setting == kFirst);
}

TEST_CASE("what is set by hand is never changed") {
  for (const bool keeps_fusion : {true, false}) {
    AutotuneOptions options = options_of(12);
    options.keeps_fusion = keeps_fusion;
    options.keeps_window = !keeps_fusion;
    Job<double (*)(const TunedSetting&)> job{Autotuner(options, kFirst), hill};
    job.run();
    REQUIRE(job.is_done);
    std::set<std::size_t> fusions;
    std::set<Duration> windows;
    for (const Autotuner::Trial& trial : job.trials) {
      fusions.insert(trial.setting.fusion_bytes);
      windows.insert(trial.setting.window);
    }
    CHECK((fusions.size() == 1) == keeps_fusion);
    CHECK((windows.size() == 1) == !keeps_fusion);
  }
  AutotuneOptions both = options_of(12);
  both.keeps_fusion = both.keeps_window = true;
  CHECK(Autotuner(both, kFirst).is_done());
}

TEST_CASE("settings stay within their limits, whatever the scores are") {
  for (const double us : {0.0, 1e-3, 1e12}) {
    const auto us_of = [us](const TunedSetting&) { return us; };
    Job<decltype(us_of)> job{Autotuner(options_of(30, 0.0), kFirst), us_of};
    job.run();
    CHECK(job.is_done);
    for (const Autotuner::Trial& trial : job.trials) {
      CHECK(std::isfinite(trial.score));
      CHECK(trial.setting.fusion_bytes >= 1U << 16U);
      CHECK(trial.setting.fusion_bytes <= 256U << 20U);
      CHECK(trial.setting.window >= std::chrono::microseconds(20));
      CHECK(trial.setting.window <= std::chrono::milliseconds(20));
    }
  }
}

TEST_CASE("names that never come again make no steps") {
  Autotuner tuner(options_of(5), kFirst);
  TimePoint now{};
  for (int i = 0; i < 10'000; ++i) {
    tuner.note("allreduce.noname." + std::to_string(i), 1, now += std::chrono::milliseconds(1));
  }
  CHECK(tuner.take_news().trials.empty());
}

}  // namespace hvd::autotuner_test
