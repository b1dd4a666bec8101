// The engine's own thread, where users' threads come and go beside it.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <deque>
#include <thread>
#include <vector>

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

// How often the threads of this process have waited in the kernel, and how often they were taken from their cores.
struct Switches {
  std::uint64_t waits = 0;
  std::uint64_t taken = 0;
};

Switches switches_of_process() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {static_cast<std::uint64_t>(usage.ru_nvcsw), static_cast<std::uint64_t>(usage.ru_nivcsw)};
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
        while (sleeps_of(ctx) < before + 2 && !soon.has_passed()) {
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

TEST_CASE("who said that it waits soon, and does not, keeps nobody waiting") {
  EngineJob job({2});
  std::atomic<int> arrived{0};
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    for (int round = 0; round < 20; ++round) {
      FloatOp op("a tensor", 1000, 1.0F);
      const hvd_op* asked = &op.op;
      std::int64_t handle = 0;
      CHECK(hvd_enqueue_many(ctx, &asked, 1, HVD_WAITS_SOON, &handle) == HVD_OK);
      if (rank == 0) {
        const Deadline deadline = test_deadline();
        std::int32_t done = 0;
        while (done == 0 && !deadline.has_passed()) {
          CHECK(hvd_poll(ctx, handle, &done) == HVD_OK);
          std::this_thread::yield();
        }
        CHECK(done == 1);
      }
      CHECK(hvd_finish(ctx, &handle, 1) == HVD_OK);
      meet(arrived, 2 * round + 2);
    }
  });
}

// Each time a thread waits in the kernel it says so before; what it does not count are locks, which two threads want at
// once where the system has taken the core from the one that holds it. So the keeper does on a busy machine that waits
// for the wheel: it is woken by each driver that lets go, and comes too late for it.
TEST_CASE("no thread wakes up that the counters do not know of") {
  constexpr int kSteps = 500;
  constexpr int kTensors = 40;
  EngineJob job({2});
  std::atomic<int> arrived{0};
  std::array<Switches, 2> switches{};
  std::array<std::uint64_t, 2> sleeps{};
  on_all(2, [&](int rank) {
    hvd_ctx* ctx = job.at(rank);
    std::deque<FloatOp> ops;
    std::vector<const hvd_op*> pointers;
    std::vector<std::int64_t> handles(kTensors);
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      ops.emplace_back("tensor " + std::to_string(tensor), 5000, 1.0F);
      pointers.push_back(&ops.back().op);
    }
    const auto look = [&](std::size_t when) {
      meet(arrived, static_cast<int>(4 * when) + 2);
      if (rank == 0) {
        switches.at(when) = switches_of_process();
        sleeps.at(when) = sleeps_of(job.at(0)) + sleeps_of(job.at(1));
      }
      meet(arrived, static_cast<int>(4 * when) + 4);
    };
    look(0);
    for (int step = 0; step < kSteps; ++step) {
      CHECK(hvd_enqueue_many(ctx, pointers.data(), kTensors, HVD_WAITS_NEXT, handles.data()) == HVD_OK);
      CHECK(hvd_finish(ctx, handles.data(), kTensors) == HVD_OK);
    }
    look(1);
  });
  const std::uint64_t waited = switches[1].waits - switches[0].waits;
  const std::uint64_t taken = switches[1].taken - switches[0].taken;
  const std::uint64_t counted = sleeps[1] - sleeps[0];
  MESSAGE(waited << " waits, " << counted << " of them counted, " << taken << " times taken from a core");
#if !defined(__SANITIZE_THREAD__)                     // which waits for locks of its own
  CHECK(waited <= counted * 5 / 4 + kSteps + taken);  // a thread that woke once a step would be twice as many more
#endif
}

}  // namespace hvd::test
