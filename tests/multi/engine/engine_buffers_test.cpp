// Memory that the runtime hands out, in which an allreduce copies nothing; on N ranks through the C interface.
#include <atomic>
#include <cstring>
#include <deque>
#include <latch>
#include <random>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_buffers_test {
namespace {

float* must_create(hvd_ctx* ctx, std::int64_t count) {
  void* data = nullptr;
  CHECK(outcome(hvd_buffer_create(ctx, count * 4, &data)).error == "");
  return static_cast<float*>(data);
}

// An allreduce in place of part of a buffer.
struct PartOp {
  FloatOp like;
  PartOp(const std::string& name, float* at, std::int64_t count) : like(name, 0, 0.0F) {
    like.count = count;
    like.op.input = at;
    like.op.output = at;
  }
};

}  // namespace

TEST_CASE("an allreduce in a buffer has the same result as elsewhere, to the bit") {
  for (const Nodes& nodes : {Nodes{1}, Nodes{2}, Nodes{3}, Nodes{4}, Nodes{2, 1}}) {
    CAPTURE(text_of(nodes));
    EngineJob job(nodes);
    on_all(job.size(), [&](int rank) {
      hvd_ctx* ctx = job.at(rank);
      float* buffer = must_create(ctx, 300'000);
      CHECK(buffer[0] == 0.0F);
      CHECK(buffer[299'999] == 0.0F);
      std::mt19937 random(static_cast<unsigned>(rank));
      std::uniform_real_distribution<float> value(-10.0F, 10.0F);
      for (const std::int64_t count : {0, 1, 7, 1023, 4096, 50'001, 300'000}) {
        for (const int reduce_op : {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_PRODUCT}) {
          FloatOp elsewhere("elsewhere", static_cast<std::size_t>(count), 0.0F);
          for (float& each : elsewhere.input) {
            each = value(random);
          }
          float* at = buffer + (300'000 - count) / 2;
          PartOp here("here", at, count);
          if (count > 0) {
            std::memcpy(at, elsewhere.input.data(), static_cast<std::size_t>(count) * 4);
          }
          for (hvd_op* op : {&elsewhere.op, &here.like.op}) {
            op->reduce_op = reduce_op;
            op->prescale = count % 2 == 0 ? 0.3 : 1.0;
            op->postscale = 1.7;
          }
          CHECK(elsewhere.run(ctx).error == "");
          CHECK(here.like.run(ctx).error == "");
          CHECK((count == 0 || std::memcmp(at, elsewhere.output.data(), static_cast<std::size_t>(count) * 4) == 0));
        }
      }
      CHECK(outcome(hvd_buffer_destroy(ctx, buffer)).error == "");
    });
  }
}

TEST_CASE("many parts of buffers, one by one and in groups, in any order, beside other tensors") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    static constexpr int kParts = 40;
    static constexpr std::int64_t kCount = 1001;
    float* first = must_create(ctx, kParts * kCount);
    float* second = must_create(ctx, 10 * kCount);
    for (int step = 0; step < 20; ++step) {
      std::mt19937 random(static_cast<unsigned>(rank + 10 * step));
      std::deque<PartOp> parts;
      std::deque<FloatOp> others;
      std::vector<int> order(kParts);
      for (int i = 0; i < kParts; ++i) {
        order[static_cast<std::size_t>(i)] = i;
        float* at = first + i * kCount;
        std::fill(at, at + kCount, static_cast<float>(rank + i + step));
        parts.emplace_back("part" + std::to_string(i), at, kCount);
        others.emplace_back("other" + std::to_string(i), 100, static_cast<float>(rank));
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const int i : order) {
        CHECK(parts[static_cast<std::size_t>(i)].like.start(ctx).error == "");
        CHECK(others[static_cast<std::size_t>(i)].start(ctx).error == "");
      }
      PartOp a("group.a", second, kCount);
      PartOp b("group.b", second + kCount, 3);
      std::fill(second, second + kCount + 3, 1.0F);
      const hvd_op* group[] = {&a.like.op, &b.like.op};
      std::int64_t handles[2] = {0, 0};
      CHECK(outcome(hvd_enqueue_group(ctx, group, 2, handles)).error == "");
      CHECK(hvd_wait(ctx, handles[0]) == HVD_OK);
      CHECK(hvd_wait(ctx, handles[1]) == HVD_OK);
      CHECK(second[kCount + 2] == 3.0F);
      for (int i = 0; i < kParts; ++i) {
        CHECK(parts[static_cast<std::size_t>(i)].like.wait(ctx).error == "");
        CHECK(others[static_cast<std::size_t>(i)].wait(ctx).error == "");
        CHECK(first[i * kCount] == static_cast<float>(3 + 3 * (i + step)));
        CHECK(first[(i + 1) * kCount - 1] == static_cast<float>(3 + 3 * (i + step)));
        CHECK(others[static_cast<std::size_t>(i)].output[99] == 3.0F);
      }
    }
  });
}

TEST_CASE("ranks whose tensors lie elsewhere, or that have joined, are no obstacle") {
  EngineJob job({3});
  on_all(3, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    float* buffer = must_create(ctx, 10'000);
    std::fill(buffer, buffer + 10'000, 1.0F);
    PartOp shifted("shifted", buffer + rank, 5000);
    CHECK(shifted.like.run(ctx).error == "");
    CHECK(buffer[4000] == 3.0F);
    FloatOp own("mixed", 5000, 1.0F);
    PartOp part("mixed", buffer + 5000, 5000);
    std::fill(buffer, buffer + 10'000, 1.0F);
    if (rank == 1) {
      CHECK(own.run(ctx).error == "");
      CHECK(own.output[4999] == 3.0F);
    } else {
      CHECK(part.like.run(ctx).error == "");
      CHECK(buffer[9999] == 3.0F);
    }
    if (rank != 2) {
      PartOp without("without", buffer, 5000);
      std::fill(buffer, buffer + 5000, 1.0F);
      CHECK(without.like.run(ctx).error == "");
      CHECK(buffer[4999] == 2.0F);
    }
    std::int64_t handle = 0;
    hvd_op join = HVD_OP_INIT;
    join.kind = HVD_JOIN;
    CHECK(outcome(hvd_execute(ctx, &join, &handle)).error == "");
  });
}

TEST_CASE("buffers come and go without a trace; what cannot be is refused") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    void* data = nullptr;
    CHECK(hvd_buffer_create(ctx, 0, &data) == HVD_INVALID);
    CHECK(hvd_buffer_create(ctx, -1, &data) == HVD_INVALID);
    CHECK(hvd_buffer_create(ctx, 100, nullptr) == HVD_INVALID);
    CHECK(outcome(hvd_buffer_create(ctx, 100 + rank, &data)).says("Mismatched BUFFER ADD"));
    CHECK(hvd_buffer_destroy(ctx, &data) == HVD_NOT_FOUND);
    float* kept = must_create(ctx, 1000);
    float* before = nullptr;
    for (int i = 0; i < 50; ++i) {
      float* big = must_create(ctx, 16 << 20);
      CHECK((before == nullptr || before == big));  // at the same place again
      before = big;
      big[rank] = 1.0F;
      CHECK(hvd_buffer_destroy(ctx, big) == HVD_OK);
    }
    CHECK(hvd_buffer_destroy(ctx, kept + 1) == HVD_NOT_FOUND);
    kept[5] = 7.0F;
    ctx->close();
    CHECK(kept[5] == 7.0F);  // still there
  });
}

}  // namespace hvd::test::engine_buffers_test
