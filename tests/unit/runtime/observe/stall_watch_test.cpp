// runtime/observe/stall_watch: who is told of what, when.
#include "runtime/observe/stall_watch.h"

#include <doctest/doctest.h>

using namespace hvd;
using namespace std::chrono_literals;

namespace {

const TimePoint kBegin{1000s};

Incomplete tensor(std::uint64_t serial, const std::string& name, std::vector<int> missing, int set = 0) {
  return {serial, set, "ALLREDUCE '" + name + "'", std::move(missing)};
}

}  // namespace

TEST_CASE("a tensor is told once per interval, with the ranks that are missing") {
  StallWatch watch({10s, 0s});
  const std::vector<Incomplete> all = {tensor(1, "a", {1, 3})};
  CHECK(watch.look(kBegin, all).warning.empty());
  CHECK(watch.look(kBegin + 9s, all).warning.empty());
  const std::string said = watch.look(kBegin + 10s, all).warning;
  CHECK(said.starts_with("stalled: ALLREDUCE 'a' waits for ranks 1,3 since 10 s. "));
  CHECK(watch.look(kBegin + 11s, all).warning.empty());
  CHECK(watch.look(kBegin + 19s, all).warning.empty());
  CHECK(watch.look(kBegin + 20s, all).warning.starts_with("stalled: ALLREDUCE 'a' waits for ranks 1,3 since 20 s. "));
  CHECK_FALSE(watch.look(kBegin + 1000s, all).end);
}

TEST_CASE("a tensor that came in time, and one of the same name, are not taken for one") {
  StallWatch watch({10s, 0s});
  watch.look(kBegin, std::vector{tensor(1, "a", {1})});
  watch.look(kBegin + 6s, std::vector{tensor(2, "a", {1})});
  CHECK(watch.look(kBegin + 12s, std::vector{tensor(2, "a", {1})}).warning.empty());
  watch.look(kBegin + 13s, {});
  CHECK(watch.look(kBegin + 30s, std::vector{tensor(2, "a", {1})}).warning.empty());
  watch.look(kBegin + 40s, {});
  watch.look(kBegin + 41s, std::vector{tensor(3, "a", {1}, 5)});
  const std::string said = watch.look(kBegin + 60s, std::vector{tensor(3, "a", {1}, 5), tensor(3, "a", {1})}).warning;
  CHECK(said.find("ALLREDUCE 'a' of process set 5 waits for rank 1 since 19 s. ") != std::string::npos);
}

TEST_CASE("many tensors are told by the ranks they wait for, the oldest first, and not all") {
  StallWatch watch({10s, 0s});
  std::vector<Incomplete> all = {tensor(99, "old", {1})};
  watch.look(kBegin, all);
  for (std::uint64_t i = 0; i < 20; ++i) {
    all.push_back(tensor(i, "t" + std::to_string(i), {1}));
  }
  all.push_back(tensor(50, "other", {0, 2}));
  watch.look(kBegin + 1s, all);
  const std::string said = watch.look(kBegin + 12s, all).warning;
  CHECK(said.find("ALLREDUCE 'other' waits for ranks 0,2 since 11 s; ALLREDUCE 'old', ") != std::string::npos);
  CHECK(said.find(" and 15 more wait for rank 1 since 12 s. ") != std::string::npos);
}

TEST_CASE("the job ends when that is asked for") {
  StallWatch watch({10s, 30s});
  const std::vector<Incomplete> all = {tensor(1, "a", {2})};
  watch.look(kBegin, all);
  CHECK_FALSE(watch.look(kBegin + 29s, all).end);
  CHECK(watch.look(kBegin + 30s, all).end ==
        "stalled: ALLREDUCE 'a' waits for rank 2 since 30 s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
}

TEST_CASE("looks are short against the intervals") {
  CHECK(StallWatch({60s, 0s}).period() == 6s);
  CHECK(StallWatch({60s, 20s}).period() == 2s);
  CHECK(StallWatch({0s, 5s}).period() == 500ms);
  CHECK(StallWatch({3600s, 0s}).period() == 15s);
  CHECK(StallWatch({1ns, 0s}).period() == 1ms);
  CHECK_FALSE(StallWatch({0s, 0s}).is_on());
}
