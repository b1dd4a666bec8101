// runtime/observe/stall_watch: who is told of what, when.
#include "runtime/observe/stall_watch.h"

#include <doctest/doctest.h>

#include "tests/support/still_clock.h"

namespace hvd::stall_watch_test {

using namespace std::chrono_literals;

namespace {

// Looked at as often as the engine does.
class Watch {
 public:
  explicit Watch(StallOptions options) : watch_(options) {}

  StallWatch::Finding look(Duration since_begin, const std::vector<Incomplete>& incomplete) {
    while (since_begin - at_ > watch_.period()) {
      step(watch_.period());
      watch_.note_running(clock_.now());
    }
    step(since_begin - at_);
    return watch_.look(clock_.now(), incomplete);
  }
  void stop(Duration stopped) { step(stopped); }

 private:
  void step(Duration by) {
    clock_.advance(by);
    at_ += by;
  }

  test::StillClock clock_;
  StallWatch watch_;
  Duration at_{};
};

Incomplete tensor(std::uint64_t serial, const std::string& name, std::vector<int> missing, int set = 0) {
  return {serial, set, "ALLREDUCE '" + name + "'", std::move(missing)};
}

}  // namespace

TEST_CASE("a tensor is told once per interval, with the ranks that are missing") {
  Watch watch({10s, 0s});
  const std::vector<Incomplete> all = {tensor(1, "a", {1, 3})};
  CHECK(watch.look(0s, all).warning.empty());
  CHECK(watch.look(9s, all).warning.empty());
  const std::string said = watch.look(10s, all).warning;
  CHECK(said.starts_with("stalled: ALLREDUCE 'a' waits for ranks 1,3 since 10 s. "));
  CHECK(watch.look(11s, all).warning.empty());
  CHECK(watch.look(19s, all).warning.empty());
  CHECK(watch.look(20s, all).warning.starts_with("stalled: ALLREDUCE 'a' waits for ranks 1,3 since 20 s. "));
  CHECK_FALSE(watch.look(1000s, all).end);
}

TEST_CASE("a tensor that came in time, and one of the same name, are not taken for one") {
  Watch watch({10s, 0s});
  watch.look(0s, {tensor(1, "a", {1})});
  watch.look(6s, {tensor(2, "a", {1})});
  CHECK(watch.look(12s, {tensor(2, "a", {1})}).warning.empty());
  watch.look(13s, {});
  CHECK(watch.look(30s, {tensor(2, "a", {1})}).warning.empty());
  watch.look(40s, {});
  watch.look(41s, {tensor(3, "a", {1}, 5)});
  const std::string said = watch.look(60s, {tensor(3, "a", {1}, 5), tensor(3, "a", {1})}).warning;
  CHECK(said.find("ALLREDUCE 'a' of process set 5 waits for rank 1 since 19 s. ") != std::string::npos);
}

TEST_CASE("many tensors are told by the ranks they wait for, the oldest first, and not all") {
  Watch watch({10s, 0s});
  std::vector<Incomplete> all = {tensor(99, "old", {1})};
  watch.look(0s, all);
  for (std::uint64_t i = 0; i < 20; ++i) {
    all.push_back(tensor(i, "t" + std::to_string(i), {1}));
  }
  all.push_back(tensor(50, "other", {0, 2}));
  watch.look(1s, all);
  const std::string said = watch.look(12s, all).warning;
  CHECK(said.find("ALLREDUCE 'other' waits for ranks 0,2 since 11 s; ALLREDUCE 'old', ") != std::string::npos);
  CHECK(said.find(" and 15 more wait for rank 1 since 12 s. ") != std::string::npos);
}

TEST_CASE("the job ends when that is asked for") {
  Watch watch({10s, 30s});
  const std::vector<Incomplete> all = {tensor(1, "a", {2})};
  watch.look(0s, all);
  CHECK_FALSE(watch.look(29s, all).end);
  CHECK(watch.look(30s, all).end ==
        "stalled: ALLREDUCE 'a' waits for rank 2 since 30 s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
}

TEST_CASE("where ranks wait for each other, the end names what each of them waits for") {
  Watch watch({10s, 30s});
  const Incomplete left = tensor(1, "left", {1});
  watch.look(0s, {left});
  watch.look(1s, {left, tensor(2, "right", {0})});
  CHECK(watch.look(30s, {left, tensor(2, "right", {0})}).end ==
        "stalled: ALLREDUCE 'right' waits for rank 0 since 29 s; ALLREDUCE 'left' waits for rank 1 since 30 s "
        "(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
}

TEST_CASE("time in which this process was stopped makes nobody late") {
  Watch watch({60s, 120s});
  const std::vector<Incomplete> all = {tensor(1, "a", {1})};
  const auto is_quiet = [](const StallWatch::Finding& finding) { return finding.warning.empty() && !finding.end; };
  watch.look(0s, all);
  CHECK(is_quiet(watch.look(54s, all)));
  watch.stop(90s);
  CHECK(is_quiet(watch.look(144s, all)));
  CHECK(is_quiet(watch.look(149s, all)));
  CHECK(watch.look(150s, all).warning.starts_with("stalled: ALLREDUCE 'a' waits for rank 1 since 60 s. "));
  watch.stop(10h);
  CHECK(is_quiet(watch.look(10h + 209s, all)));
  const StallWatch::Finding last = watch.look(10h + 216s, all);
  CHECK(last.warning.find(" since 120 s. ") != std::string::npos);
  CHECK(last.end == "stalled: ALLREDUCE 'a' waits for rank 1 since 120 s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
}

TEST_CASE("looks are short against the intervals") {
  CHECK(StallWatch({60s, 0s}).period() == 6s);
  CHECK(StallWatch({60s, 20s}).period() == 2s);
  CHECK(StallWatch({0s, 5s}).period() == 500ms);
  CHECK(StallWatch({3600s, 0s}).period() == 15s);
  CHECK(StallWatch({1ns, 0s}).period() == 1ms);
  CHECK_FALSE(StallWatch({0s, 0s}).is_on());
}

}  // namespace hvd::stall_watch_test
