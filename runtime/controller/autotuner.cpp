#include "runtime/controller/autotuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hvd {
namespace {

// As in Horovod, a setting takes several measurements, because one says little on a busy machine.
constexpr std::size_t kScoresPerSetting = 5;

// A step has fewer names than this; beyond it they must be names that are used only once.
constexpr std::size_t kMostNames = 100'000;

// Settings are tried between these limits, spaced evenly on a logarithmic scale.
constexpr double kLeastFusionBytes = 1U << 16U;
constexpr double kMostFusionBytes = 256U << 20U;
constexpr double kLeastWindowUs = 20;
constexpr double kMostWindowUs = 20'000;
constexpr int kGrid = 16;  // steps of each coordinate

// The settings that are tried after the first one; they are far apart, so that the first estimate has a basis.
constexpr GaussianProcess::Point kSeeds[] = {{0.85, 0.15}, {0.35, 0.5}, {0.6, 0.85}};

double place_of(double value, double least, double most) {
  return std::clamp(std::log(std::max(value, least) / least) / std::log(most / least), 0.0, 1.0);
}

double value_at(double place, double least, double most) {
  return least * std::pow(most / least, place);
}

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

Autotuner::Autotuner(const AutotuneOptions& options, const TunedSetting& first)
    : options_(options), first_(first), warmups_left_(options.warmup_samples), setting_(first) {
  is_done_ = options.max_samples < 1 || (options.keeps_fusion && options.keeps_window);
}

void Autotuner::note(const std::string& tensor, std::size_t bytes, TimePoint now) {
  if (is_done_) {
    return;
  }
  if (seen_.size() >= kMostNames) {
    seen_.clear();
  }
  if (!seen_.insert(tensor).second) {
    end_step(now);
    seen_.insert(tensor);
  }
  bytes_ += bytes;
}

void Autotuner::end_step(TimePoint now) {
  seen_.clear();
  if (!began_) {
    began_ = now;  // earlier tensors belong to the previous setting
    bytes_ = 0;
    return;
  }
  if (++steps_ < options_.steps_per_sample) {
    return;
  }
  const double us = microseconds(now - *began_);
  scores_.push_back(us > 0 ? static_cast<double>(bytes_) / us : 0.0);
  began_ = now;
  bytes_ = 0;
  steps_ = 0;
  if (scores_.size() < kScoresPerSetting) {
    return;
  }
  const auto middle = scores_.begin() + static_cast<std::ptrdiff_t>(scores_.size() / 2);
  std::nth_element(scores_.begin(), middle, scores_.end());
  end_setting(*middle);
}

void Autotuner::end_setting(double score) {
  if (warmups_left_ > 0) {
    --warmups_left_;
    begin_setting(setting_);
    return;
  }
  trials_.push_back(Trial{setting_, score});
  news_.trials.push_back(trials_.back());
  if (trials_.size() < static_cast<std::size_t>(options_.max_samples)) {
    begin_setting(next_setting());
    return;
  }
  is_done_ = true;
  news_.is_done = true;
  news_.trials.push_back(best());
  begin_setting(best().setting);
}

void Autotuner::begin_setting(const TunedSetting& setting) {
  if (setting != setting_) {
    news_.setting = setting;
  }
  setting_ = setting;
  scores_.clear();
  steps_ = 0;
  began_.reset();
}

Autotuner::News Autotuner::take_news() {
  return std::exchange(news_, {});
}

GaussianProcess::Point Autotuner::point_of(const TunedSetting& setting) const {
  return {options_.keeps_fusion
              ? 0.5
              : place_of(static_cast<double>(setting.fusion_bytes), kLeastFusionBytes, kMostFusionBytes),
          options_.keeps_window ? 0.5 : place_of(microseconds(setting.window), kLeastWindowUs, kMostWindowUs)};
}

TunedSetting Autotuner::setting_at(const GaussianProcess::Point& point) const {
  TunedSetting setting = first_;
  if (!options_.keeps_fusion) {
    setting.fusion_bytes = static_cast<std::size_t>(value_at(point[0], kLeastFusionBytes, kMostFusionBytes));
  }
  if (!options_.keeps_window) {
    setting.window = std::chrono::microseconds(std::lround(value_at(point[1], kLeastWindowUs, kMostWindowUs)));
  }
  return setting;
}

GaussianProcess Autotuner::guess_from_trials() const {
  std::vector<GaussianProcess::Point> points;
  std::vector<double> scores;
  for (const Trial& trial : trials_) {
    points.push_back(point_of(trial.setting));
    scores.push_back(trial.score);
  }
  return GaussianProcess(points, scores, options_.noise);
}

TunedSetting Autotuner::next_setting() const {
  if (trials_.size() <= std::size(kSeeds)) {
    return setting_at(kSeeds[trials_.size() - 1]);
  }
  const GaussianProcess guess = guess_from_trials();
  double most = guess.at(point_of(trials_.front().setting)).mean;
  for (const Trial& trial : trials_) {
    most = std::max(most, guess.at(point_of(trial.setting)).mean);
  }
  TunedSetting chosen = first_;
  double hope = -1.0;
  for (int i = 0; i <= (options_.keeps_fusion ? 0 : kGrid); ++i) {
    for (int j = 0; j <= (options_.keeps_window ? 0 : kGrid); ++j) {
      const GaussianProcess::Point point =
          point_of(setting_at({static_cast<double>(i) / kGrid, static_cast<double>(j) / kGrid}));
      if (const double here = guess.expected_improvement(point, most); here > hope) {
        hope = here;
        chosen = setting_at(point);
      }
    }
  }
  return chosen;
}

// Compares the estimates at each setting, since a single score may have been luck.
const Autotuner::Trial& Autotuner::best() const {
  const GaussianProcess guess = guess_from_trials();
  return *std::max_element(trials_.begin(), trials_.end(), [&](const Trial& a, const Trial& b) {
    return guess.at(point_of(a.setting)).mean < guess.at(point_of(b.setting)).mean;
  });
}

}  // namespace hvd
