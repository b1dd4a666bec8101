#include "runtime/bench/tune_bench.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <stdlib.h>

#include "runtime/base/contract.h"
#include "runtime/base/machine.h"
#include "runtime/bench/agreement.h"
#include "runtime/core/tuning_table.h"

namespace hvd::bench {
namespace {

// How often each setting is tried, in turn with the others, so that a disturbance does not hit the same setting each
// time.
constexpr int kRounds = 3;
// A setting must be faster than the runtime's default by this share to be worth a file.
constexpr double kLeastGain = 0.03;
// The number of small calls in a batch, and of timed large calls.
constexpr std::int64_t kSmallCalls = 400;
constexpr std::int64_t kLargeCalls = 12;
constexpr std::int64_t kSteps = 5;
constexpr std::int64_t kSmall = 256LL << 10U;

constexpr std::int64_t kKi = 1LL << 10U;
constexpr std::int64_t kMi = 1LL << 20U;

class Tuner {
 public:
  Tuner(const BenchOptions& options, const PutRow& put) : options_(options), put_(put) {}

  Result<TuningTable> run() {
    HVD_TRY(look_around());
    const bool has_neighbours = table_.place.ranks_per_node > 1;
    const bool has_other_nodes = table_.place.nodes > 1;
    if (has_neighbours && !has_other_nodes) {
      HVD_TRY(find_quick_limit());
      HVD_TRY(find_whole_limit());
      HVD_TRY(find_small_limit());
    }
    if (has_neighbours) {
      HVD_TRY(
          find_best(&Tuning::chunk_bytes, {128 * kKi, 256 * kKi, 512 * kKi, 1 * kMi}, {1 * kMi, 8 * kMi, 64 * kMi}));
    }
    if (has_other_nodes) {
      HVD_TRY(find_pairs_limit());
      HVD_TRY(find_best(&Tuning::wire_bytes, {64 * kKi, 256 * kKi, 1 * kMi}, {256 * kKi, 4 * kMi}));
    }
    if (table_.place.ranks > table_.place.nodes && has_other_nodes) {
      HVD_TRY(find_best(&Tuning::segment_bytes, {1 * kMi, 4 * kMi, 16 * kMi}, {16 * kMi, 64 * kMi}));
    }
    HVD_TRY(find_fusion());
    return table_;
  }

  [[nodiscard]] bool is_first() const { return is_first_; }

 private:
  // Times map a size to the shortest median of the rounds, in seconds.
  using Times = std::map<std::int64_t, double>;
  using Sizes = std::vector<std::int64_t>;

  // The runtime reads rank 0's environment when it joins. Changing it is safe, because no other thread runs while no
  // job is joined.
  Result<Place> join(const Tuning& tuning) {
    TuningTable tried = table_;
    tried.tuning = tuning;
    if (::setenv(contract::kTuning, to_json(tried).c_str(), 1) != 0) {
      return Error::from_errno(std::string("setting ") + contract::kTuning);
    }
    HVD_TRY(to_result(hvd_init(nullptr), "joining the job"));
    return Place{hvd_rank(nullptr), hvd_size(nullptr)};
  }

  static Result<void> leave() {
    HVD_TRY(barrier());  // a rank that leaves early would look like a lost one
    return to_result(hvd_shutdown(), "leaving the job");
  }

  // Clears settings that ranks may have in their environments, because they would change the measurement.
  Result<void> look_around() {
    for (const char* name : {contract::kTuning, contract::kFusionThreshold, contract::kAutotune}) {
      static_cast<void>(::unsetenv(name));
    }
    HVD_TRY(to_result(hvd_init(nullptr), "joining the job"));
    RankMap map;
    map.size = hvd_size(nullptr);
    is_first_ = hvd_rank(nullptr) == 0;
    // The values are rank 0's, so that all ranks have the same: their measurements depend on it.
    const double neighbours = is_first_ ? hvd_local_size(nullptr) : 0;
    const double nodes = is_first_ ? hvd_cross_size(nullptr) : 0;  // each node has a first rank
    HVD_TRY_ASSIGN(const auto told, largest({neighbours, nodes}));
    map.local_size = static_cast<int>(told[0]);
    map.node_count = static_cast<int>(told[1]);
    table_.place = place_of(map, processor_name());
    return leave();
  }

  Result<void> measure(const Tuning& tuning, const Sizes& sizes, const std::string& what, Times& times) {
    HVD_TRY_ASSIGN(const Place place, join(tuning));
    for (const std::int64_t size : sizes) {
      BenchOptions options = options_;
      options.measure = Measure::kAllreduce;
      options.iters = options_.iters > 0 ? options_.iters : size <= kSmall ? kSmallCalls : kLargeCalls;
      HVD_TRY_ASSIGN(const auto collective, Collective::make(options, place, size, true));
      HVD_TRY_ASSIGN(const std::int64_t wrong, collective->call_checked(static_cast<std::uint64_t>(size)));
      collective->calm();
      Row row;
      row.what = what;
      row.bytes = collective->bytes();
      row.count = collective->count();
      HVD_TRY_ASSIGN(row.in_place, time_calls(options, [&collective] { return collective->call(); }));
      HVD_TRY_ASSIGN(row.in_place->wrong, sum(wrong));
      note(row, size, times);
    }
    return leave();
  }

  void note(const Row& row, std::int64_t size, Times& times) {
    const auto [at, is_new] = times.emplace(size, row.in_place->median_s);
    at->second = std::min(at->second, row.in_place->median_s);
    if (is_first_) {
      put_(row);
    }
  }

  [[nodiscard]] Sizes within_limit(Sizes sizes) const {
    std::erase_if(sizes, [this](std::int64_t size) { return size > options_.max_bytes; });
    return sizes;
  }

  // Finds the limit with the best times: sizes up to it use the settings `below`, larger ones use `above`. `own` is the
  // present limit, which stays unless another is clearly better.
  Result<std::int64_t> find_limit(const std::string& name, const Tuning& below, const Tuning& above, Sizes sizes,
                                  std::int64_t own) {
    sizes = within_limit(std::move(sizes));
    Times small;
    Times large;
    for (int round = 0; round < kRounds; ++round) {
      HVD_TRY(measure(below, sizes, name + ":up-to", small));
      HVD_TRY(measure(above, sizes, name + ":above", large));
    }
    Sizes limits = sizes;
    limits.insert(limits.begin(), 0);
    std::vector<double> scores;
    for (const std::int64_t limit : limits) {
      double score = 0;
      for (const std::int64_t size : sizes) {
        score += std::log(size <= limit ? small[size] : large[size]);
      }
      scores.push_back(sizes.empty() ? 0 : score / static_cast<double>(sizes.size()));
    }
    const auto fallback = std::upper_bound(limits.begin(), limits.end(), own) - limits.begin() - 1;
    const std::size_t chosen = choose(scores, static_cast<std::size_t>(fallback));
    return chosen == static_cast<std::size_t>(fallback) ? own : limits[chosen];
  }

  Result<void> find_quick_limit() {
    Tuning above = table_.tuning;
    above.quick_bytes = 0;
    HVD_TRY_ASSIGN(const std::int64_t limit,
                   find_limit("quick_bytes", table_.tuning, above, {4 * kKi, 16 * kKi, 32 * kKi, 64 * kKi, 128 * kKi},
                              static_cast<std::int64_t>(table_.tuning.quick_bytes)));
    table_.tuning.quick_bytes = static_cast<std::size_t>(limit);
    return {};
  }

  // The limit concerns one rank's bytes, and so also the sum that all read: ranks of a smaller process set may have
  // more each.
  Result<void> find_whole_limit() {
    Tuning below = table_.tuning;
    below.quick_bytes = below.quick_whole_bytes = Tuning{}.quick_bytes;
    below.quick_read_bytes = below.quick_bytes * ranks();
    Tuning above = below;
    above.quick_whole_bytes = 0;
    const auto own = std::min(Tuning{}.quick_whole_bytes, Tuning{}.quick_read_bytes / ranks());
    HVD_TRY_ASSIGN(const std::int64_t limit,
                   find_limit("quick_whole_bytes", below, above, {1 * kKi, 4 * kKi, 8 * kKi, 16 * kKi, 32 * kKi},
                              static_cast<std::int64_t>(own)));
    if (static_cast<std::size_t>(limit) != own) {
      table_.tuning.quick_whole_bytes = static_cast<std::size_t>(limit);
      table_.tuning.quick_read_bytes = static_cast<std::size_t>(limit) * ranks();
    }
    return {};
  }

  Result<void> find_pairs_limit() {
    Tuning below = table_.tuning;
    below.pairs_bytes = 1U << 20U;
    Tuning above = table_.tuning;
    above.pairs_bytes = 0;
    HVD_TRY_ASSIGN(const std::int64_t limit,
                   find_limit("pairs_bytes", below, above, {16 * kKi, 64 * kKi, 128 * kKi, 256 * kKi, 1 * kMi},
                              static_cast<std::int64_t>(table_.tuning.pairs_bytes)));
    table_.tuning.pairs_bytes = static_cast<std::size_t>(limit);
    return {};
  }

  Result<void> find_small_limit() {
    Tuning below = table_.tuning;
    below.quick_bytes = 0;
    below.small_bytes = 8U << 10U;
    below.small_read_bytes = below.small_bytes * ranks();
    Tuning above = below;
    above.small_bytes = 0;
    const auto own = std::min(Tuning{}.small_bytes, Tuning{}.small_read_bytes / ranks());
    HVD_TRY_ASSIGN(
        const std::int64_t limit,
        find_limit("small_bytes", below, above, {1 * kKi, 2 * kKi, 4 * kKi, 8 * kKi}, static_cast<std::int64_t>(own)));
    if (static_cast<std::size_t>(limit) != own) {
      table_.tuning.small_bytes = static_cast<std::size_t>(limit);
      table_.tuning.small_read_bytes = static_cast<std::size_t>(limit) * ranks();
    }
    return {};
  }

  Result<void> find_best(std::size_t Tuning::* field, const Sizes& candidates, Sizes sizes) {
    sizes = within_limit(std::move(sizes));
    std::vector<Times> times(candidates.size());
    for (int round = 0; round < kRounds && !sizes.empty(); ++round) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        Tuning tried = table_.tuning;
        tried.*field = static_cast<std::size_t>(candidates[i]);
        HVD_TRY(measure(tried, sizes, name_of(field) + "=" + std::to_string(candidates[i]), times[i]));
      }
    }
    keep_best(field, candidates, times);
    return {};
  }

  // Settings above what a step has are all the same, so they are not tried.
  Result<void> find_fusion() {
    if (options_.max_bytes < static_cast<std::int64_t>(Tuning{}.fusion_bytes / 2)) {
      return {};
    }
    const Sizes candidates = {16 * kMi, 64 * kMi, 128 * kMi};
    std::vector<Times> times(candidates.size());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        Tuning tried = table_.tuning;
        tried.fusion_bytes = static_cast<std::size_t>(candidates[i]);
        HVD_TRY_ASSIGN(const Place place, join(tried));
        BenchOptions options = options_;
        options.iters = options_.iters > 0 ? options_.iters : kSteps;
        HVD_TRY_ASSIGN(Row row, measure_each_gradient(options, place));
        row.what = "fusion_bytes=" + std::to_string(candidates[i]);
        note(row, row.bytes, times[i]);
        HVD_TRY(leave());
      }
    }
    keep_best(&Tuning::fusion_bytes, candidates, times);
    return {};
  }

  void keep_best(std::size_t Tuning::* field, const Sizes& candidates, const std::vector<Times>& times) {
    std::vector<double> scores;
    std::size_t fallback = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      double score = 0;
      for (const auto& [size, seconds] : times[i]) {
        score += std::log(seconds);
      }
      scores.push_back(times[i].empty() ? 0 : score / static_cast<double>(times[i].size()));
      fallback = static_cast<std::size_t>(candidates[i]) == table_.tuning.*field ? i : fallback;
    }
    table_.tuning.*field = static_cast<std::size_t>(candidates[choose(scores, fallback)]);
  }

  static std::string name_of(std::size_t Tuning::* field) {
    for (const TuningField& known : tuning_fields()) {
      if (known.value == field) {
        return known.name;
      }
    }
    return "?";
  }

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(table_.place.ranks_per_node); }

  const BenchOptions options_;
  const PutRow& put_;
  TuningTable table_;
  bool is_first_ = false;
};

}  // namespace

std::size_t choose(const std::vector<double>& scores, std::size_t fallback) {
  const auto best = std::min_element(scores.begin(), scores.end());
  const bool is_clear = best != scores.end() && *best < scores[fallback] + std::log(1 - kLeastGain);
  return is_clear ? static_cast<std::size_t>(best - scores.begin()) : fallback;
}

Result<void> measure_tuning(const BenchOptions& options, const PutRow& put, const PutTable& put_table) {
  Tuner tuner(options, put);
  HVD_TRY_ASSIGN(const TuningTable table, tuner.run());
  if (tuner.is_first()) {
    put_table(to_json(table));
  }
  return {};
}

}  // namespace hvd::bench
