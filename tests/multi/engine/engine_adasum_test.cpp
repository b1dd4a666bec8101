// Adasum on N ranks through the C interface. That its numbers are right is tests/multi/adasum_test.cpp's.
#include <algorithm>
#include <cmath>
#include <deque>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_adasum_test {
namespace {

// Rank r brings (r+1) in the places r, r+size, ... and 0 elsewhere: ranks are orthogonal, so that Adasum adds.
void make_orthogonal(FloatOp& op, int rank, int size) {
  op.op.reduce_op = HVD_ADASUM;
  for (std::size_t i = 0; i < op.input.size(); ++i) {
    op.input[i] = static_cast<int>(i) % size == rank ? static_cast<float>(rank + 1) : 0.0F;
  }
}

bool is_sum_of_orthogonal(const std::vector<float>& output, int size, float scale = 1.0F) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] != scale * static_cast<float>(static_cast<int>(i) % size + 1)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("Adasum adds what is orthogonal and averages what is equal, on every placement and fused or not") {
  for (const Nodes& nodes : all_layouts()) {
    for (const std::size_t threshold : {std::size_t{0}, std::size_t{1} << 20U}) {
      CAPTURE(text_of(nodes));
      EngineOptions options;
      options.fusion_threshold_bytes = threshold;
      EngineJob job(nodes, options);
      on_all(job.size(), [&](int rank) {
        std::deque<FloatOp> ops;
        for (const std::size_t count : {1U, 7U, 1024U, 40'000U, 3U}) {
          make_orthogonal(ops.emplace_back("o" + std::to_string(count), count, 0.0F), rank, job.size());
          ops.emplace_back("e" + std::to_string(count), count, 2.5F).op.reduce_op = HVD_ADASUM;
          ops.back().op.output = ops.back().input.data();  // in place
        }
        for (FloatOp& op : ops) {
          CHECK(op.start(job.at(rank)).error == "");
        }
        for (FloatOp& op : ops) {
          CHECK(op.wait(job.at(rank)).error == "");
          if (op.name[0] == 'o') {
            CHECK(is_sum_of_orthogonal(op.output, job.size()));
          } else {
            const auto far = [](float value) { return std::fabs(value - 2.5F) > 1e-6F; };
            CHECK(std::none_of(op.input.begin(), op.input.end(), far));
          }
        }
      });
    }
  }
}

TEST_CASE("each tensor of a group is its own Adasum, with scales before and after") {
  EngineJob job({2, 1});
  on_all(job.size(), [&](int rank) {
    FloatOp small("a", 3, 0.0F);
    FloatOp large("b", 3000, 0.0F);
    std::int64_t handles[2] = {0, 0};
    const hvd_op* ops[] = {&small.op, &large.op};
    for (FloatOp* op : {&small, &large}) {
      make_orthogonal(*op, rank, job.size());
      op->op.prescale = 2.0;
      op->op.postscale = 0.25;
    }
    CHECK(outcome(hvd_enqueue_group(job.at(rank), ops, 2, handles)).error == "");
    CHECK(outcome(hvd_finish(job.at(rank), handles, 2)).error == "");
    CHECK(is_sum_of_orthogonal(small.output, job.size(), 0.5F));
    CHECK(is_sum_of_orthogonal(large.output, job.size(), 0.5F));
  });
}

TEST_CASE("Adasum among the ranks of a process set is that of its own ranks") {
  EngineJob job({3, 2});
  on_all(job.size(), [&](int rank) {
    const std::int32_t ranks[] = {0, 2, 4};
    std::int32_t number = 0;
    CHECK(outcome(hvd_process_set_add(job.at(rank), ranks, 3, &number)).error == "");
    if (rank % 2 == 0) {
      FloatOp op("of.set", 1000, 0.0F);
      make_orthogonal(op, rank / 2, 3);
      op.op.process_set = number;
      CHECK(op.run(job.at(rank)).error == "");
      CHECK(is_sum_of_orthogonal(op.output, 3));
    }
  });
}

TEST_CASE("a rank that has joined changes nothing in the others' Adasum") {
  EngineJob job({2, 1});
  on_all(job.size(), [&](int rank) {
    if (rank != 1) {
      FloatOp op("late", 500, 4.0F);
      op.op.reduce_op = HVD_ADASUM;
      CHECK(op.run(job.at(rank)).error == "");
      CHECK(op.output == std::vector<float>(500, 4.0F));
    }
    hvd_op join = HVD_OP_INIT;
    join.kind = HVD_JOIN;
    std::int64_t handle = 0;
    CHECK(outcome(hvd_execute(job.at(rank), &join, &handle)).error == "");
    CHECK(hvd_release(job.at(rank), handle) == HVD_OK);
  });
}

TEST_CASE("Adasum refuses integers and other operations at the call, and ranks that disagree about it are named") {
  EngineJob job({2});
  on_all(job.size(), [&](int rank) {
    FloatOp op("x", 4, 1.0F);
    op.op.reduce_op = HVD_ADASUM;
    for (const std::int32_t dtype : {HVD_INT32, HVD_UINT8, HVD_INT8, HVD_UINT16, HVD_INT16, HVD_BOOL}) {
      op.op.dtype = dtype;
      const Outcome refused = op.start(job.at(rank));
      CHECK(refused.status == HVD_INVALID);
      CHECK(refused.says("Adasum is of float16, bfloat16, float32 and float64, not of " +
                         std::string(name_of(static_cast<Dtype>(dtype)))));
    }
    op.op.dtype = HVD_FLOAT32;
    op.op.kind = HVD_REDUCESCATTER;
    op.op.output = nullptr;
    CHECK(op.start(job.at(rank)).says("HVD_ADASUM is an operator of allreduce only, not of REDUCESCATTER"));
    op.op.kind = HVD_ALLREDUCE;
    op.op.output = op.output.data();
    op.op.reduce_op = rank == 0 ? HVD_ADASUM : HVD_SUM;
    const Outcome differs = op.run(job.at(rank));
    CHECK(differs.status == HVD_MISMATCH);
    CHECK(differs.says("rank 0 sent reduction op ADASUM, but rank 1 sent reduction op SUM"));
  });
}

}  // namespace hvd::test::engine_adasum_test
