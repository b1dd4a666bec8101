// What tests of process sets ask of a rank, through the C interface.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test {

using Ranks = std::vector<std::int32_t>;

inline Outcome add_set(hvd_ctx* ctx, const Ranks& ranks, std::int32_t& number) {
  return outcome(hvd_process_set_add(ctx, ranks.data(), static_cast<std::int32_t>(ranks.size()), &number));
}

// Of the set, by its number; the test fails where it cannot be made.
inline std::int32_t must_add(hvd_ctx* ctx, const Ranks& ranks) {
  std::int32_t number = -1;
  CHECK(add_set(ctx, ranks, number).error == "");
  return number;
}

inline bool is_in(const Ranks& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

inline Ranks numbers_of(hvd_ctx* ctx) {
  std::int32_t count = 0;
  CHECK(hvd_process_set_numbers(ctx, nullptr, 0, &count) == HVD_OK);
  Ranks numbers(static_cast<std::size_t>(count));
  CHECK(hvd_process_set_numbers(ctx, numbers.data(), count, &count) == HVD_OK);
  return numbers;
}

// Every kind of operation among these ranks, whose results are computed here too.
inline void do_everything(hvd_ctx* ctx, std::int32_t set, const Ranks& ranks, int rank, const std::string& name) {
  const auto size = static_cast<int>(ranks.size());
  const auto index = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const auto sum = static_cast<float>(std::accumulate(ranks.begin(), ranks.end(), 0));
  for (const std::size_t count : {std::size_t{1}, std::size_t{3000}, std::size_t{300'000}}) {
    FloatOp reduce(name, count, static_cast<float>(rank));
    reduce.op.process_set = set;
    CHECK(reduce.run(ctx).error == "");
    CHECK(reduce.output == std::vector<float>(count, sum));

    FloatOp average(name, count, static_cast<float>(rank));
    average.op.process_set = set;
    average.op.reduce_op = HVD_AVERAGE;
    CHECK(average.run(ctx).error == "");
    CHECK(average.output.back() == doctest::Approx(sum / static_cast<float>(size)));

    FloatOp broadcast(name, count, static_cast<float>(rank));
    broadcast.op.process_set = set;
    broadcast.op.kind = HVD_BROADCAST;
    broadcast.op.root_rank = ranks.back();
    CHECK(broadcast.run(ctx).error == "");
    CHECK(broadcast.output == std::vector<float>(count, static_cast<float>(ranks.back())));

    hvd_output out = HVD_OUTPUT_INIT;
    FloatOp gather(name, count * static_cast<std::size_t>(index + 1), static_cast<float>(rank));
    gather.op.process_set = set;
    gather.op.kind = HVD_ALLGATHER;
    gather.op.output = nullptr;
    CHECK(gather.run(ctx).error == "");
    CHECK(hvd_result(ctx, gather.handle, &out) == HVD_OK);
    CHECK(out.shape[0] == static_cast<std::int64_t>(count) * size * (size + 1) / 2);
    CHECK(static_cast<const float*>(out.data)[out.shape[0] - 1] == static_cast<float>(ranks.back()));

    FloatOp scatter(name, count * static_cast<std::size_t>(size), static_cast<float>(rank));
    scatter.op.process_set = set;
    scatter.op.kind = HVD_REDUCESCATTER;
    scatter.op.output = nullptr;
    CHECK(scatter.run(ctx).error == "");
    CHECK(hvd_result(ctx, scatter.handle, &out) == HVD_OK);
    CHECK(out.shape[0] == static_cast<std::int64_t>(count));
    CHECK(static_cast<const float*>(out.data)[0] == sum);

    FloatOp exchange(name, count * static_cast<std::size_t>(size), static_cast<float>(rank));
    exchange.op.process_set = set;
    exchange.op.kind = HVD_ALLTOALL;
    exchange.op.output = nullptr;
    CHECK(exchange.run(ctx).error == "");
    CHECK(hvd_result(ctx, exchange.handle, &out) == HVD_OK);
    CHECK(out.received_count == size);
    for (int from = 0; from < size; ++from) {
      const auto at = static_cast<std::size_t>(from) * count;
      CHECK(static_cast<const float*>(out.data)[at] == static_cast<float>(ranks[static_cast<std::size_t>(from)]));
    }
    FloatOp barrier(name, 0, 0.0F);
    barrier.op.process_set = set;
    barrier.op.kind = HVD_BARRIER;
    CHECK(barrier.run(ctx).error == "");
  }
}

}  // namespace hvd::test
