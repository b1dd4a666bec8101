#include "runtime/front/step_watch.h"

#include <condition_variable>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::front::step_watch_test {
namespace {

// What a watch has said, on whatever thread. Never destroyed, like the watch.
struct Told {
  std::mutex mu;
  std::condition_variable more;
  std::vector<int> counts;  // of the collectives that still waited

  std::vector<int> wait_for(std::size_t wanted) {
    std::unique_lock lock(mu);
    more.wait_for(lock, std::chrono::minutes(5), [&] { return counts.size() >= wanted; });
    return counts;
  }
};

struct Watched {
  explicit Watched(StepWatch::Numbers which = StepWatch::Numbers::kUsedAgain,
                   std::chrono::milliseconds waits = std::chrono::milliseconds(1))
      : numbers(which), patience(waits) {}

  const StepWatch::Numbers numbers;
  const std::chrono::milliseconds patience;
  Told& told = *new Told;
  StepWatch& watch = *new StepWatch(patience, numbers, [&told = told](int count) {
    const std::lock_guard lock(told.mu);
    told.counts.push_back(count);
    told.more.notify_all();
  });
};

}  // namespace

TEST_CASE("a step that has failed, and whose other collectives still wait, is left once") {
  Watched here;
  for (int i = 0; i < 4; ++i) {
    here.watch.begin(7);
  }
  here.watch.end(7, true);
  CHECK(here.told.wait_for(1) == std::vector<int>{3});
}

TEST_CASE("a step that has failed and ended says nothing of a later one with its number") {
  Watched here(StepWatch::Numbers::kUsedAgain, std::chrono::milliseconds(500));  // it ends in this time
  here.watch.begin(7);
  here.watch.begin(7);
  here.watch.begin(7);
  here.watch.end(7, true);
  here.watch.end(7, true);
  here.watch.end(7, true);
  here.watch.begin(7);
  // The next failure is told after that of step 7 would have been, for failures are looked at in their order.
  here.watch.begin(8);
  here.watch.begin(8);
  here.watch.begin(8);
  here.watch.end(8, true);
  CHECK(here.told.wait_for(1) == std::vector<int>{2});
}

TEST_CASE("a collective that a failed step starts later is waited for no longer than the others") {
  Watched here(StepWatch::Numbers::kUnique, std::chrono::seconds(5));  // the next call comes in this time
  here.watch.begin(7);
  here.watch.end(7, true);
  here.watch.begin(7);
  CHECK(here.told.wait_for(1) == std::vector<int>{1});
}

}  // namespace hvd::front::step_watch_test
