// The engine's own thread, where users' threads come and go beside it.
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/base/pause.h"
#include "tests/multi/engine/engine_job.h"

namespace hvd::test {
namespace {

std::uint64_t sleeps_of(hvd_ctx* ctx) {
  hvd_counters counters = HVD_COUNTERS_INIT;
  CHECK(hvd_read_counters(ctx, 0, &counters) == HVD_OK);
  return counters.sleeps;
}

void meet(std::atomic<int>& arrived, int target) {
  ++arrived;
  while (arrived.load() < target) {
    std::this_thread::yield();
  }
}

}  // namespace

// Two drivers in a row, of which the second reads what the first left to wake the keeper: it must be woken again, or
// nobody answers what comes when both have gone.
TEST_CASE("a rank whose threads do nothing any more still answers the others, however it fell asleep") {
  constexpr int kRounds = 200;
  EngineJob job({2});
  std::atomic<int> arrived{0};
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    const std::int32_t alone[] = {1};
    std::int32_t own_set = 0;
    CHECK(outcome(hvd_process_set_add(ctx, alone, 1, &own_set)).error == "");
    const auto run = [&](const char* name, std::int32_t set) {
      FloatOp op(name, 100'000, 1.0F);  // too large for the quick path
      op.op.process_set = set;
      CHECK(outcome(hvd_execute(ctx, &op.op, nullptr)).error == "");
    };
    for (int round = 0; round < kRounds; ++round) {
      if (rank == 0) {
        // The keeper dozes first, and sleeps deeply soon after; it may sleep so already.
        const std::uint64_t before = sleeps_of(ctx);
        const Deadline soon = Deadline::after(std::chrono::milliseconds(15));
        while (sleeps_of(ctx) == before && !soon.has_passed()) {
          std::this_thread::yield();
        }
      }
      meet(arrived, 4 * round + 2);
      run("first", 0);
      for (int i = 0; rank == 1 && i < (round % 20) * 1000; ++i) {
        pause_briefly();  // so that rank 0 has to wait, and asks the kernel for news
      }
      run("second", 0);
      if (rank == 1) {
        run("own", own_set);  // rank 0 decides it, and has no thread but the keeper
      }
      meet(arrived, 4 * round + 4);
    }
  });
}

}  // namespace hvd::test
