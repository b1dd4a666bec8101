// Waits that have a limit, and one callback for the operations of several ranks.
#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_waiting_test {
namespace {

struct Told {
  std::promise<hvd_status> status;
  std::string text;
};

void note(void* arg, hvd_status status, const char* error) {
  auto& told = *static_cast<Told*>(arg);
  told.text = error == nullptr ? "" : error;
  told.status.set_value(status);
}

bool is_done_within(hvd_ctx* ctx, const std::vector<std::int64_t>& handles, std::int64_t microseconds) {
  std::int32_t done = -1;
  CHECK(outcome(hvd_wait_some(ctx, handles.data(), static_cast<std::int32_t>(handles.size()), microseconds, &done))
            .error == "");
  return done == 1;
}

}  // namespace

TEST_CASE("a bounded wait ends without the other rank, and the operation goes on without a wait") {
  EngineJob job({2});
  for (const std::int64_t microseconds : {0, 100, 3000}) {
    std::promise<void> has_given_up;
    on_all(2, [&](int rank) {
      FloatOp op("late", 1000, 1.0F + static_cast<float>(rank));
      const hvd_op* ops[] = {&op.op};
      if (rank == 1) {
        has_given_up.get_future().wait();
        CHECK(op.run(job.at(rank)).error == "");
      } else {
        // Nobody was woken for it: the bounded wait is what has to see to that.
        CHECK(outcome(hvd_enqueue_many(job.at(rank), ops, 1, HVD_WAITS_NEXT, &op.handle)).error == "");
        CHECK_FALSE(is_done_within(job.at(rank), {op.handle}, microseconds));
        Told told;
        CHECK(outcome(hvd_on_all_done(job.at(rank), &op.handle, 1, note, &told)).error == "");
        has_given_up.set_value();
        CHECK(told.status.get_future().get() == HVD_OK);
      }
      CHECK(op.output[999] == 3.0F);
      CHECK(hvd_release(job.at(rank), op.handle) == HVD_OK);
    });
  }
}

TEST_CASE("bounded waits of two threads of each rank, for operations in opposite order, end all operations") {
  constexpr int kRounds = 50;
  EngineJob job({2});
  on_all(4, [&](int thread) {
    hvd_ctx* ctx = job.at(thread / 2);
    for (int round = 0; round < kRounds; ++round) {
      // On rank 0 thread 0 has "a", on rank 1 thread 2 has "b".
      FloatOp op((thread == 0 || thread == 3) ? "a" : "b", 100, 1.0F);
      const hvd_op* ops[] = {&op.op};
      CHECK(outcome(hvd_enqueue_many(ctx, ops, 1, HVD_WAITS_NEXT, &op.handle)).error == "");
      while (!is_done_within(ctx, {op.handle}, 50)) {
      }
      CHECK(op.wait(ctx).error == "");
      CHECK(hvd_release(ctx, op.handle) == HVD_OK);
      CHECK(op.output[0] == 2.0F);
    }
  });
}

TEST_CASE("the callback of a group has the first failure's status and text, on every rank") {
  EngineJob job({2});
  on_all(2, [&](int rank) {
    FloatOp first("one", 10, 1.0F);
    FloatOp second("two", rank == 0 ? 10 : 20, 1.0F);
    const hvd_op* ops[] = {&first.op, &second.op};
    std::array<std::int64_t, 2> handles{};
    CHECK(outcome(hvd_enqueue_group(job.at(rank), ops, 2, handles.data())).error == "");
    Told told;
    CHECK(outcome(hvd_on_all_done(job.at(rank), handles.data(), 2, note, &told)).error == "");
    CHECK(told.status.get_future().get() == HVD_MISMATCH);
    CHECK(told.text.find("two") != std::string::npos);
    CHECK(hvd_finish(job.at(rank), handles.data(), 2) == HVD_MISMATCH);
  });
}

TEST_CASE("a bounded wait ends when the other rank leaves the job") {
  EngineJob job({2});
  FloatOp op("alone", 10, 1.0F);
  CHECK(op.start(job.at(0)).error == "");
  job.leave(1);
  CHECK(is_done_within(job.at(0), {op.handle}, std::int64_t{600} * 1'000'000));
  CHECK(op.wait(job.at(0)).status == HVD_LOST_PEER);
}

}  // namespace hvd::test::engine_waiting_test
