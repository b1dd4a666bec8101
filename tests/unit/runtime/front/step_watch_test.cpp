#include "runtime/front/tensorflow/step_watch.h"

#include <condition_variable>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

using hvd::front::tf::StepWatch;

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
  Told& told = *new Told;
  StepWatch& watch = *new StepWatch(std::chrono::milliseconds(1), [&told = told](int count) {
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
  Watched here;
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
