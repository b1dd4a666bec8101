// Autotuner searches, while a job trains, for the settings under which it moves the most bytes per second: how much is
// fused, and how long a decision waits for more. It tries a setting for some steps and takes the median of a few
// measurements as its score. A Gaussian process then predicts which setting to try next; in the end the best one stays.
//
// Only the coordinator's decisions depend on these settings. So only the coordinator has an Autotuner, and all ranks
// change with the same response. A step ends when a tensor comes again; names that are used only once make no steps.
// Pure: the caller gives the time. Thread: engine only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/controller/gaussian_process.h"

namespace hvd {

struct TunedSetting {
  std::size_t fusion_bytes = 0;
  Duration window{};

  friend bool operator==(const TunedSetting&, const TunedSetting&) = default;
};

struct AutotuneOptions {
  bool is_on = false;
  int warmup_samples = 3;  // how many settings' worth of steps are discarded first
  int steps_per_sample = 10;
  int max_samples = 20;       // settings that are tried
  double noise = 0.8;         // of a score, from 0 to 1, see GaussianProcess
  bool keeps_fusion = false;  // keep the value that the user has set
  bool keeps_window = false;
  std::string log_path;  // empty: none
};

class Autotuner {
 public:
  // Trial is a setting that was tried, or at the end the best one.
  struct Trial {
    TunedSetting setting;
    double score = 0.0;  // bytes per microsecond
  };
  // News is the outcome of a step's end; it is usually empty.
  struct News {
    std::optional<TunedSetting> setting;  // the setting to use from now on
    std::vector<Trial> trials;
    bool is_done = false;
  };

  Autotuner(const AutotuneOptions& options, const TunedSetting& first);

  // Records that a tensor has become ready on all ranks.
  void note(const std::string& tensor, std::size_t bytes, TimePoint now);
  // Call after all tensors that became ready at once.
  News take_news();

  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  void end_step(TimePoint now);
  void end_setting(double score);
  void begin_setting(const TunedSetting& setting);
  [[nodiscard]] GaussianProcess::Point point_of(const TunedSetting& setting) const;
  [[nodiscard]] TunedSetting setting_at(const GaussianProcess::Point& point) const;
  // Fits the process to the trials so far.
  [[nodiscard]] GaussianProcess guess_from_trials() const;
  [[nodiscard]] TunedSetting next_setting() const;
  [[nodiscard]] const Trial& best() const;

  // constant after construction
  const AutotuneOptions options_;
  const TunedSetting first_;
  // state of the step, of the sample, of the setting
  std::unordered_set<std::string> seen_;
  std::optional<TimePoint> began_;  // begin of the sample; none: it begins with the next step
  std::size_t bytes_ = 0;
  int steps_ = 0;
  std::vector<double> scores_;
  // state of the whole search
  int warmups_left_;
  TunedSetting setting_;
  std::vector<Trial> trials_;
  News news_;
  bool is_done_ = false;
};

}  // namespace hvd
