#include "runtime/front/completion_pool.h"

#include <signal.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <pthread.h>

namespace hvd::front::completion_pool_test {
namespace {

class Call final : public Job {
 public:
  explicit Call(std::function<void()> body) : body_(std::move(body)) {}
  void run() noexcept override { body_(); }

 private:
  std::function<void()> body_;
};

void post(CompletionPool& pool, std::function<void()> body) {
  pool.post(std::make_unique<Call>(std::move(body)));
}

}  // namespace

TEST_CASE("jobs that wait for each other all run, however many are posted before") {
  constexpr int kJobs = 40;
  std::promise<void> last_runs;
  const std::shared_future<void> waits = last_runs.get_future().share();
  std::atomic<int> ended = 0;
  {
    CompletionPool pool;
    for (int i = 0; i < kJobs; ++i) {
      post(pool, [&] {
        waits.wait();
        ++ended;
      });
    }
    post(pool, [&] { last_runs.set_value(); });
    waits.wait();
    CHECK(pool.threads() > kJobs);
  }
  CHECK(ended == kJobs);
}

TEST_CASE("a pool that ends runs what was posted before") {
  std::atomic<int> ended = 0;
  {
    CompletionPool pool;
    for (int i = 0; i < 1000; ++i) {
      post(pool, [&] { ++ended; });
    }
  }
  CHECK(ended == 1000);
}

TEST_CASE("one thread takes jobs in the order in which they were posted") {
  std::vector<int> order;
  std::mutex mu;
  {
    CompletionPool pool;
    // Each job is posted while the one before runs, so that only its end lets the next begin.
    for (int i = 0; i < 50; ++i) {
      std::promise<void> done;
      post(pool, [&] {
        const std::lock_guard lock(mu);
        order.push_back(i);
        done.set_value();
      });
      done.get_future().wait();
    }
  }
  REQUIRE(order.size() == 50);
  for (int i = 0; i < 50; ++i) {
    CHECK(order[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("threads that a crowd needed end when it has gone, but for two") {
  CompletionPool pool(std::chrono::milliseconds(1));
  std::promise<void> go;
  const std::shared_future<void> waits = go.get_future().share();
  for (int i = 0; i < 10; ++i) {
    post(pool, [waits] { waits.wait(); });
  }
  CHECK(pool.threads() >= 10);
  go.set_value();
  while (pool.threads() > 2) {
    std::this_thread::yield();  // the test's own limit ends it
  }
  CHECK(pool.threads() == 2);
}

TEST_CASE("a thread of the pool takes no signal of the program") {
  CompletionPool pool;
  std::promise<bool> blocks;
  post(pool, [&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocks.set_value(::sigismember(&mask, SIGINT) == 1 && ::sigismember(&mask, SIGTERM) == 1);
  });
  CHECK(blocks.get_future().get());
}

}  // namespace hvd::front::completion_pool_test
