// Measures each pair of ranks separately, while the others wait. The latency is that of an allreduce of --min bytes in
// a process set of the two. The bandwidth is that of a broadcast of --max bytes from the lower rank to the higher. So a
// slow link, or a rank on a busy core, stands out.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>

#include "runtime/bench/agreement.h"
#include "runtime/bench/bench_rank.h"
#include "runtime/bench/test_data.h"

namespace hvd::bench {
namespace {

// PairCall is one process set's operation of one size. Ranks outside the set do nothing, but take part in the
// agreements.
class PairCall {
 public:
  PairCall(const BenchOptions& options, std::int32_t kind, std::int32_t set, std::array<std::int32_t, 2> ranks,
           Place place, std::int64_t bytes)
      : options_(options),
        index_(place.rank == ranks[0]   ? 0
               : place.rank == ranks[1] ? 1
                                        : -1),
        count_(std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(size_of(options.dtype)))) {
    op_.kind = kind;
    op_.dtype = static_cast<std::int32_t>(options.dtype);
    op_.reduce_op = static_cast<std::int32_t>(options.op);
    op_.root_rank = ranks[0];
    op_.process_set = set;
    op_.ndim = 1;
    op_.shape = &count_;
    op_.name = "bench.pair";
  }
  PairCall(const PairCall&) = delete;
  PairCall& operator=(const PairCall&) = delete;

  Result<Row> measure(const std::string& what, std::uint64_t seed) {
    if (index_ >= 0) {
      memory_.reset(new (std::nothrow) std::byte[size_bytes()]);
    }
    if (index_ >= 0 && memory_ == nullptr) {
      return Error(Code::kResource, "no memory for " + std::to_string(size_bytes()) + " bytes; lower --max");
    }
    op_.input = memory_.get();
    op_.output = memory_.get();
    const TestData data(2, options_.dtype, options_.op, seed);
    std::int64_t wrong = 0;
    if (index_ >= 0) {
      data.fill(memory_.get(), count_, index_);
      HVD_TRY(call());
      wrong = op_.kind == HVD_BROADCAST ? data.count_wrong(memory_.get(), count_, 0)
                                        : data.count_wrong_reduction(memory_.get(), count_);
      std::memset(memory_.get(), 0, size_bytes());
    }
    Row row;
    row.what = what;
    row.bytes = static_cast<std::int64_t>(size_bytes());
    row.count = count_;
    HVD_TRY_ASSIGN(row.in_place, time_calls(options_, [this] { return call(); }));
    HVD_TRY_ASSIGN(row.in_place->wrong, sum(wrong));
    return row;
  }

 private:
  Result<void> call() {
    return index_ < 0 ? Result<void>() : to_result(hvd_execute(nullptr, &op_, nullptr), "a pair's operation");
  }
  [[nodiscard]] std::size_t size_bytes() const { return static_cast<std::size_t>(count_) * size_of(options_.dtype); }

  const BenchOptions options_;
  const int index_;  // in the pair; -1: this rank is not in it
  const std::int64_t count_;
  std::unique_ptr<std::byte[]> memory_;
  hvd_op op_ = HVD_OP_INIT;
};

}  // namespace

Result<void> measure_pairs(const BenchOptions& options, Place place, const PutRow& put) {
  std::uint64_t seed = 0;
  for (std::int32_t low = 0; low < place.size; ++low) {
    for (std::int32_t high = low + 1; high < place.size; ++high) {
      const std::array<std::int32_t, 2> ranks = {low, high};
      const std::string what = std::to_string(low) + "-" + std::to_string(high);
      // In a job of two ranks, the set of all ranks is the pair.
      std::int32_t set = 0;
      if (place.size > 2) {
        HVD_TRY(to_result(hvd_process_set_add(nullptr, ranks.data(), 2, &set), "connecting ranks " + what));
      }
      {
        PairCall small(options, HVD_ALLREDUCE, set, ranks, place, options.min_bytes);
        HVD_TRY_ASSIGN(const Row row, small.measure(what, ++seed));
        put(row);
      }
      PairCall large(options, HVD_BROADCAST, set, ranks, place, options.max_bytes);
      HVD_TRY_ASSIGN(const Row row, large.measure(what, ++seed));
      put(row);
      if (set != 0) {
        HVD_TRY(to_result(hvd_process_set_remove(nullptr, set), "parting ranks " + what));
      }
    }
  }
  return {};
}

}  // namespace hvd::bench
