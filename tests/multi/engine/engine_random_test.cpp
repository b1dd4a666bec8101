// Random operations on random process sets in random order of arrival, on ranks as threads.
//
// HVD_RANDOM_SECONDS: how long (3); then it also tells how many there were. HVD_RANDOM_SEED: of an earlier run; a
// failure tells it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include <doctest/doctest.h>

#include "runtime/bench/test_data.h"
#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_random_test {
namespace {

using bench::TestData;
using Random = std::mt19937_64;

std::uint64_t number_from(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody writes the environment
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

int below(Random& random, int limit) {
  return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
}

// One operation, as all ranks know it.
struct Planned {
  int kind = HVD_ALLREDUCE;
  std::size_t set = 0;  // index among the sets
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t count = 0;  // elements; of the kinds that cut, for each rank
  int root = 0;            // index in the set
  bool in_place = false;
  bool in_buffer = false;
  std::uint64_t seed = 0;
  std::string name;  // empty: unnamed
};

struct Set {
  std::int32_t number = 0;
  std::vector<std::int32_t> ranks;

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int index_of(int rank) const {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  }
};

constexpr std::int64_t kBufferBytes = 1 << 20;
constexpr std::int64_t kSizes[] = {0, 1, 7, 1024, 3000, 40'000};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kAdasum,
                             ReduceOp::kMin, ReduceOp::kMax,     ReduceOp::kProduct};

Planned plan_one(Random& random, std::size_t sets, int number) {
  Planned one;
  one.kind = below(random, HVD_JOIN);
  one.set = random() % sets;
  one.dtype = static_cast<Dtype>(below(random, kDtypeCount));
  one.op = kOps[random() % std::size(kOps)];
  const bool may_be_adasum = one.kind == HVD_ALLREDUCE && is_floating(one.dtype);
  if ((one.op == ReduceOp::kAverage && one.dtype == Dtype::kBool) || (one.op == ReduceOp::kAdasum && !may_be_adasum)) {
    one.op = ReduceOp::kSum;
  }
  one.count = kSizes[random() % std::size(kSizes)];
  one.root = below(random, 64);
  one.in_place = random() % 2 == 0;
  one.in_buffer = one.kind == HVD_ALLREDUCE && random() % 4 == 0;
  one.seed = random();
  one.name = "op" + std::to_string(number % 50);
  return one;
}

// A planned operation on one rank: its memory, and whether its result is right.
class Run {
 public:
  Run(const Planned& planned, const Set& set, int rank, std::uint8_t* buffer)
      : plan_(planned),
        set_(set),
        index_(set.index_of(rank)),
        is_adasum_(planned.op == ReduceOp::kAdasum),
        data_(set.size(), planned.dtype, is_adasum_ ? ReduceOp::kSum : planned.op, planned.seed),
        element_(size_of(planned.dtype)) {
    const bool cuts = plan_.kind == HVD_REDUCESCATTER || plan_.kind == HVD_ALLTOALL;
    rows_ = plan_.kind == HVD_ALLGATHER ? plan_.count * (index_ + 1) : cuts ? plan_.count * set.size() : plan_.count;
    const auto bytes = static_cast<std::size_t>(rows_) * element_;
    const bool fits = plan_.in_buffer && static_cast<std::int64_t>(bytes) <= kBufferBytes;
    own_.resize(bytes + 8);
    other_.resize(bytes + 8);
    auto* input = fits ? buffer : reinterpret_cast<std::uint8_t*>(own_.data());
    output_ = plan_.in_place || fits ? input : reinterpret_cast<std::uint8_t*>(other_.data());
    data_.fill(input, rows_, is_adasum_ ? 0 : index_);
    op.kind = plan_.kind;
    op.process_set = set.number;
    op.dtype = static_cast<std::int32_t>(plan_.dtype);
    op.reduce_op = static_cast<std::int32_t>(plan_.op);
    op.root_rank = set.ranks[static_cast<std::size_t>(plan_.root % set.size())];
    op.ndim = 1;
    op.shape = &rows_;
    op.name = plan_.name.empty() ? nullptr : plan_.name.c_str();
    op.input = input;
    op.output = is_runtimes() ? nullptr : output_;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  [[nodiscard]] bool is_runtimes() const {
    return plan_.kind == HVD_ALLGATHER || plan_.kind == HVD_REDUCESCATTER || plan_.kind == HVD_ALLTOALL;
  }

  // Elements that are wrong; -1 when there is no result.
  std::int64_t wrong(hvd_ctx* ctx) const {
    hvd_output out = HVD_OUTPUT_INIT;
    if (is_runtimes() && hvd_result(ctx, handle, &out) != HVD_OK) {
      return -1;
    }
    const auto* got = static_cast<const std::uint8_t*>(out.data);
    switch (plan_.kind) {
      case HVD_ALLREDUCE:
        // Of ranks that all bring the same, Adasum is just that.
        return is_adasum_ ? data_.count_wrong(output_, plan_.count, 0)
                          : data_.count_wrong_reduction(output_, plan_.count);
      case HVD_BROADCAST:
        return data_.count_wrong(output_, plan_.count, plan_.root % set_.size());
      case HVD_REDUCESCATTER:
        return data_.count_wrong_reduction(got, plan_.count, plan_.count * index_);
      case HVD_ALLGATHER:
      case HVD_ALLTOALL:
        return wrong_rows(got);
      default:
        return 0;
    }
  }

  hvd_op op = HVD_OP_INIT;
  std::int64_t handle = 0;

 private:
  std::int64_t wrong_rows(const std::uint8_t* got) const {
    std::int64_t wrong = 0;
    for (int from = 0; from < set_.size(); ++from) {
      const bool is_gather = plan_.kind == HVD_ALLGATHER;
      const std::int64_t rows = is_gather ? plan_.count * (from + 1) : plan_.count;
      wrong += data_.count_wrong(got, rows, from, is_gather ? 0 : plan_.count * index_);
      got += static_cast<std::size_t>(rows) * element_;
    }
    return wrong;
  }

  const Planned plan_;
  const Set set_;
  const int index_;
  const bool is_adasum_;
  const TestData data_;
  const std::size_t element_;
  std::int64_t rows_ = 0;
  std::vector<double> own_;  // aligned for every type
  std::vector<double> other_;
  std::uint8_t* output_ = nullptr;
};

// What one rank does; all have the same plan, and each an order of its own.
class Player {
 public:
  Player(hvd_ctx* ctx, int rank, int size, std::uint64_t seed)
      : ctx_(ctx), rank_(rank), size_(size), common_(seed), own_(seed + static_cast<std::uint64_t>(rank) + 1) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    sets_.push_back({0, all});
    void* data = nullptr;
    ok(hvd_buffer_create(ctx_, kBufferBytes, &data));
    buffer_ = static_cast<std::uint8_t*>(data);
  }

  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] std::uint64_t finished() const { return finished_; }

  // A buffer that is kept would keep its addresses, and there are many rounds.
  void end() { ok(hvd_buffer_destroy(ctx_, buffer_)); }

  void play_window() {
    const bool have_sets_changed = change_sets();
    std::vector<Planned> sync;
    bool is_buffer_used = false;
    // As training goes: mostly the same again, and now and then something else under the same name.
    const bool is_repeated = !have_sets_changed && common_() % 4 != 0;
    std::vector<Planned> async = is_repeated ? std::exchange(last_async_, {}) : std::vector<Planned>();
    for (Planned& one : async) {
      const std::string name = one.name;
      one = common_() % 16 == 0 ? plan_one(common_, sets_.size(), 0) : one;
      one.name = name;
      one.seed = common_();
    }
    for (int i = is_repeated ? 0 : below(common_, 12); i > 0; --i) {
      async.push_back(plan_one(common_, sets_.size(), ++numbers_));
    }
    for (Planned& one : async) {
      one.in_buffer = one.in_buffer && !is_buffer_used;
      is_buffer_used = is_buffer_used || one.in_buffer;
    }
    last_async_ = async;
    for (Planned& one : async) {
      one.in_buffer = one.in_buffer && own_() % 8 != 0;  // ranks need not agree about it
    }
    for (int i = below(common_, 8); i > 0; --i) {
      sync.push_back(plan_one(common_, sets_.size(), ++numbers_));
      sync.back().in_buffer = sync.back().in_buffer && !is_buffer_used;
      sync.back().name = common_() % 2 == 0 ? "" : "sync " + sync.back().name;
    }
    std::shuffle(async.begin(), async.end(), own_);
    std::deque<Run> pending;
    for (const Planned& one : async) {
      if (takes_part(one)) {
        Run& run = pending.emplace_back(one, sets_[one.set], rank_, buffer_);
        ok(hvd_enqueue(ctx_, &run.op, &run.handle));
      }
    }
    // Synchronous ones wait for all, so their order is the same everywhere.
    for (const Planned& one : sync) {
      if (takes_part(one)) {
        Run run(one, sets_[one.set], rank_, buffer_);
        ok(hvd_execute(ctx_, &run.op, &run.handle));
        finish(run);
      }
    }
    for (Run& run : pending) {
      ok(hvd_wait(ctx_, run.handle));
      finish(run);
    }
  }

 private:
  [[nodiscard]] bool takes_part(const Planned& one) const { return sets_[one.set].index_of(rank_) >= 0; }

  // True when there are others than before.
  bool change_sets() {
    bool is_changed = false;
    if (sets_.size() > 1 && common_() % 8 == 0) {
      const std::size_t which = 1 + common_() % (sets_.size() - 1);
      ok(hvd_process_set_remove(ctx_, sets_[which].number));
      sets_.erase(sets_.begin() + static_cast<std::ptrdiff_t>(which));
      is_changed = true;
    }
    if (sets_.size() < 4 && common_() % 8 == 0) {
      Set set;
      for (int rank = 0; rank < size_; ++rank) {
        if (common_() % 2 == 0) {
          set.ranks.push_back(rank);
        }
      }
      const auto is_same = [&](const Set& other) { return other.ranks == set.ranks; };
      if (!set.ranks.empty() && std::none_of(sets_.begin(), sets_.end(), is_same)) {
        ok(hvd_process_set_add(ctx_, set.ranks.data(), static_cast<std::int32_t>(set.ranks.size()), &set.number));
        sets_.push_back(set);
        is_changed = true;
      }
    }
    return is_changed;
  }

  void finish(const Run& run) {
    if (const std::int64_t wrong = run.wrong(ctx_); wrong != 0 && error_.empty()) {
      error_ = std::to_string(wrong) + " wrong elements of kind " + std::to_string(run.op.kind) + ", type " +
               std::to_string(run.op.dtype) + ", op " + std::to_string(run.op.reduce_op) + ", rows " +
               std::to_string(run.op.shape[0]) + ", set " + std::to_string(run.op.process_set);
    }
    ok(hvd_release(ctx_, run.handle));
    ++finished_;
  }
  void ok(hvd_status status) {
    if (status != HVD_OK && error_.empty()) {
      error_ = hvd_last_error();
    }
  }

  hvd_ctx* ctx_;
  const int rank_;
  const int size_;
  Random common_;  // the same on all ranks
  Random own_;
  std::vector<Set> sets_;
  std::uint8_t* buffer_ = nullptr;
  int numbers_ = 0;
  std::vector<Planned> last_async_;
  std::uint64_t finished_ = 0;  // operations
  std::string error_;
};

}  // namespace

TEST_CASE("random operations on random sets, in each rank's own order, all have their results") {
  const auto seconds = std::chrono::seconds(number_from("HVD_RANDOM_SECONDS", 3));
  const std::uint64_t seed = number_from("HVD_RANDOM_SEED", std::random_device()());
  const Nodes layouts[] = {{2}, {3}, {2, 1}, {4}, {2, 2}, {1, 1, 1}};
  const auto end = std::chrono::steady_clock::now() + seconds;
  std::atomic<std::uint64_t> finished = 0;  // operations, on each of their ranks
  std::size_t round = 0;
  for (; round == 0 || std::chrono::steady_clock::now() < end; ++round) {
    const Nodes& nodes = layouts[round % std::size(layouts)];
    CAPTURE(text_of(nodes));
    CAPTURE(seed);
    CAPTURE(round);
    EngineOptions options;
    options.fusion_threshold_bytes = round % 3 == 0 ? 0 : 100'000;
    const std::size_t capacities[] = {1024, 4, 1024, 0, 12};
    options.cache_capacity = capacities[round % std::size(capacities)];
    if (round / std::size(layouts) % 2 == 1) {  // between nodes all along rings, in many pieces and segments
      options.tuning.pairs_bytes = 0;
      options.tuning.wire_bytes = 4096;
      options.tuning.segment_bytes = 64U << 10U;
    }
    EngineJob job(nodes, options);
    std::vector<std::string> errors(static_cast<std::size_t>(job.size()));
    on_all(job.size(), [&](int rank) {
      Player player(job.at(rank), rank, job.size(), seed + round);
      for (int window = 0; window < 60 && player.error().empty(); ++window) {
        player.play_window();
      }
      if (player.error().empty()) {
        player.end();
      }
      errors[static_cast<std::size_t>(rank)] = player.error();
      finished += player.finished();
      if (!player.error().empty()) {
        job.at(rank)->close();  // the others must not wait for it
      }
    });
    for (const std::string& error : errors) {
      CHECK(error == "");
    }
  }
  if (number_from("HVD_RANDOM_SECONDS", 0) > 0) {
    MESSAGE(finished.load() << " operations on " << round << " jobs, seed " << seed);
  }
}

}  // namespace hvd::test::engine_random_test
