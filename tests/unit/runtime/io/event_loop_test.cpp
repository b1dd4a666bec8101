#include "runtime/io/event_loop.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "runtime/io/scope.h"
#include "tests/support/still_clock.h"

namespace hvd::event_loop_test {

using std::chrono::milliseconds;

namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(300));
}

void put_byte(const Pipe& pipe) {
  REQUIRE(::write(pipe.write_end.get(), "x", 1) == 1);
}
void take_byte(const Pipe& pipe) {
  char byte = 0;
  REQUIRE(::read(pipe.read_end.get(), &byte, 1) == 1);
}

}  // namespace

TEST_CASE("a watched descriptor calls its handler when it is readable and not before") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  const Pipe pipe = make_pipe().value();
  int calls = 0;
  const auto id = loop->watch(pipe.read_end.get(), EPOLLIN, [&](std::uint32_t events) {
    CHECK((events & EPOLLIN) != 0);
    take_byte(pipe);
    ++calls;
  });
  REQUIRE(id.ok());
  REQUIRE(loop->turn(Deadline::after(milliseconds(1))).ok());
  CHECK(calls == 0);
  put_byte(pipe);
  REQUIRE(loop->turn(soon()).ok());
  CHECK(calls == 1);
  loop->rewatch(id.value(), 0);
  put_byte(pipe);
  REQUIRE(loop->turn(Deadline::after(milliseconds(1))).ok());
  CHECK(calls == 1);
  loop->rewatch(id.value(), EPOLLIN);
  REQUIRE(loop->turn(soon()).ok());
  CHECK(calls == 2);
}

TEST_CASE("the end of a pipe is reported also when nothing is asked for") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  Pipe pipe = make_pipe().value();
  std::uint32_t seen = 0;
  REQUIRE(loop->watch(pipe.read_end.get(), 0, [&](std::uint32_t events) { seen |= events; }).ok());
  pipe.write_end.reset();
  REQUIRE(loop->turn(soon()).ok());
  CHECK((seen & EPOLLHUP) != 0);
}

TEST_CASE("a handler removed by another one of the same batch is not called any more") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  const Pipe a = make_pipe().value();
  const Pipe b = make_pipe().value();
  WatchId id_a = 0;
  WatchId id_b = 0;
  int calls = 0;
  const auto remove_both = [&](std::uint32_t) {
    ++calls;
    loop->unwatch(id_a);  // one of the two is the handler that runs
    loop->unwatch(id_b);
  };
  id_a = loop->watch(a.read_end.get(), EPOLLIN, remove_both).value();
  id_b = loop->watch(b.read_end.get(), EPOLLIN, remove_both).value();
  put_byte(a);
  put_byte(b);
  REQUIRE(loop->turn(soon()).ok());
  CHECK(calls == 1);
}

TEST_CASE("an event of a closed descriptor does not reach the next owner of its number") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  const Pipe trigger = make_pipe().value();
  Pipe old = make_pipe().value();
  Pipe fresh;
  WatchId old_id = 0;
  WatchId trigger_id = 0;
  int old_calls = 0;
  int fresh_calls = 0;
  int number = -1;
  // Whichever of the two runs first replaces the old pipe by one with the same numbers, in the middle of the batch.
  const auto replace = [&] {
    if (!old.read_end.is_open()) {
      return;
    }
    number = old.read_end.get();
    loop->unwatch(old_id);
    old.read_end.reset();
    old.write_end.reset();
    fresh = make_pipe().value();
    REQUIRE(loop->watch(fresh.read_end.get(), EPOLLIN, [&](std::uint32_t) { ++fresh_calls; }).ok());
  };
  old_id = loop->watch(old.read_end.get(), EPOLLIN,
                       [&](std::uint32_t) {
                         ++old_calls;
                         replace();
                       })
               .value();
  trigger_id = loop->watch(trigger.read_end.get(), EPOLLIN,
                           [&](std::uint32_t) {
                             loop->unwatch(trigger_id);
                             replace();
                           })
                   .value();
  put_byte(trigger);
  put_byte(old);
  REQUIRE(loop->turn(soon()).ok());
  CHECK(fresh.read_end.get() == number);
  CHECK(old_calls <= 1);
  CHECK(fresh_calls == 0);
}

TEST_CASE("timers run in the order of their time, once, and not when they were cancelled") {
  test::StillClock clock;
  const auto loop = EventLoop::create(clock).value();
  std::string ran;
  loop->after(milliseconds(20), [&] { ran += 'b'; });
  loop->after(milliseconds(10), [&] { ran += 'a'; });
  const TimerId cancelled = loop->after(milliseconds(15), [&] { ran += 'X'; });
  loop->after(milliseconds(30), [&] { ran += 'c'; });
  loop->cancel(cancelled);
  loop->cancel(cancelled);
  const auto turn = [&] { REQUIRE(loop->turn(Deadline(clock.now())).ok()); };
  turn();
  CHECK(ran.empty());
  clock.advance(milliseconds(25));
  turn();
  CHECK(ran == "ab");
  turn();
  CHECK(ran == "ab");
  clock.advance(milliseconds(5));
  turn();
  CHECK(ran == "abc");
  CHECK(loop->now() == clock.now());
}

TEST_CASE("a timer may cancel another one that is due in the same turn, and start new ones") {
  test::StillClock clock;
  const auto loop = EventLoop::create(clock).value();
  std::string ran;
  TimerId second = 0;
  loop->after(milliseconds(1), [&] {
    ran += '1';
    loop->cancel(second);
    loop->after(milliseconds(1), [&] { ran += '3'; });
  });
  second = loop->after(milliseconds(2), [&] { ran += '2'; });
  clock.advance(milliseconds(5));
  REQUIRE(loop->turn(Deadline(clock.now())).ok());
  CHECK(ran == "1");
  clock.advance(milliseconds(1));
  REQUIRE(loop->turn(Deadline(clock.now())).ok());
  CHECK(ran == "13");
}

TEST_CASE("the timers of a process that was stopped are put off, in their order, and can still be cancelled") {
  test::StillClock clock;
  const auto loop = EventLoop::create(clock).value();
  std::string ran;
  loop->after(milliseconds(20), [&] { ran += 'b'; });
  loop->after(milliseconds(10), [&] { ran += 'a'; });
  const TimerId cancelled = loop->after(milliseconds(15), [&] { ran += 'X'; });
  clock.advance(milliseconds(5 + 1000));
  loop->postpone(milliseconds(1000));
  loop->after(milliseconds(12), [&] { ran += 'c'; });
  loop->cancel(cancelled);
  const auto turn = [&] { REQUIRE(loop->turn(Deadline(clock.now())).ok()); };
  turn();
  CHECK(ran.empty());
  clock.advance(milliseconds(5));
  turn();
  CHECK(ran == "a");
  clock.advance(milliseconds(10));
  turn();
  CHECK(ran == "acb");
}

TEST_CASE("the loop sleeps until the next timer and wakes for it") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  bool is_done = false;
  loop->after(milliseconds(30), [&] { is_done = true; });
  const auto before = loop->wakeups();
  const auto deadline = soon();
  while (!is_done && !deadline.has_passed()) {
    REQUIRE(loop->turn().ok());
  }
  CHECK(is_done);
  CHECK(loop->wakeups() - before <= 2);
}

TEST_CASE("idle means no wake-ups") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  const Pipe pipe = make_pipe().value();
  REQUIRE(loop->watch(pipe.read_end.get(), EPOLLIN, [](std::uint32_t) {}).ok());
  const auto before = loop->wakeups();
  REQUIRE(loop->turn(Deadline::after(milliseconds(50))).ok());
  CHECK(loop->wakeups() - before == 1);  // that of the deadline itself
}

TEST_CASE("work posted by other threads runs on the loop's thread, none of it twice or never") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  static constexpr int kThreads = 4;
  static constexpr int kEach = 500;
  int ran = 0;
  const auto loop_thread = std::this_thread::get_id();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        loop->post([&] {
          ran += std::this_thread::get_id() == loop_thread ? 1 : 0;
          if (ran == kThreads * kEach) {
            loop->stop();
          }
        });
      }
    });
  }
  CHECK(loop->run().ok());
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(ran == kThreads * kEach);
}

TEST_CASE("work that posts work gets another turn") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  int ran = 0;
  loop->post([&] {
    ++ran;
    loop->post([&] {
      ++ran;
      loop->stop();
    });
  });
  CHECK(loop->run().ok());
  CHECK(ran == 2);
}

TEST_CASE("what is posted through a scope does not run once its owner is gone") {
  struct Owner {
    explicit Owner(EventLoop& loop) : scope(loop) {}
    std::string name = "x";
    Scope scope;
  };
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  Owner lives(*loop);
  auto dies = std::make_unique<Owner>(*loop);
  const auto life = dies->scope.life();
  std::string ran;
  dies->scope.post([&] {
    ran += "first";
    dies.reset();  // in the middle of its own task
  });
  dies->scope.post([&] { ran += dies->name; });
  lives.scope.post([&] { ran += ",second"; });
  CHECK(!life.expired());
  REQUIRE(loop->turn(soon()).ok());
  CHECK(ran == "first,second");
  CHECK(life.expired());
}

TEST_CASE("stop from another thread ends a loop that has nothing to do") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  std::thread stopper([&] { loop->stop(); });
  CHECK(loop->run().ok());
  stopper.join();
}

// In a child process: watching signals blocks them for the thread, and the other tests' mask is not to be changed.
TEST_CASE("signals arrive on the loop") {
  const pid_t child = ::fork();
  if (child == 0) {
    const SteadyClock clock;
    const auto loop = EventLoop::create(clock).value();
    int sum = 0;
    bool is_ok = loop->watch_signals({SIGUSR1, SIGTERM},
                                     [&](int signo) {
                                       sum += signo;
                                       if (sum == SIGUSR1 + SIGTERM) {
                                         loop->stop();
                                       }
                                     })
                     .ok();
    ::kill(::getpid(), SIGUSR1);
    ::kill(::getpid(), SIGTERM);
    is_ok = is_ok && loop->run().ok() && sum == SIGUSR1 + SIGTERM;
    ::_exit(is_ok ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a regular file cannot be watched, and that is an error") {
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock).value();
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  REQUIRE(file.is_open());
  CHECK_FALSE(loop->watch(file.get(), EPOLLIN, [](std::uint32_t) {}).ok());
}

}  // namespace hvd::event_loop_test
