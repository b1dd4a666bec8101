#include "launcher/samples/stall_finder.h"

#include <doctest/doctest.h>

namespace hvd::launch::stall_finder_test {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);

JobPicture three_ranks() {
  JobPicture job;
  job.running_ms = 100'000;
  job.nodes.resize(1);
  job.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) {
    job.ranks[static_cast<std::size_t>(rank)].rank = rank;
    job.ranks[static_cast<std::size_t>(rank)].state = "running";
  }
  return job;
}

void let_wait(RankShown& rank, const char* tensor, std::uint64_t for_ms) {
  rank.used.has_runtime = true;
  rank.used.runtime.operation = "allreduce";
  rank.used.runtime.tensor = tensor;
  rank.used.runtime.for_ms = for_ms;
}

}  // namespace

TEST_CASE("a stall is told once, and the next one again") {
  StallFinder finder(kLimit, false);
  JobPicture job = three_ranks();
  let_wait(job.ranks[0], "x", 59'999);
  CHECK(!finder.look(job));
  let_wait(job.ranks[0], "x", 60'000);
  let_wait(job.ranks[1], "x", 61'000);
  CHECK(finder.look(job) == "ranks 0,1 have waited for 60 s in allreduce 'x'");
  CHECK(!finder.look(job));
  let_wait(job.ranks[0], "y", 10);
  let_wait(job.ranks[1], "y", 10);
  CHECK(!finder.look(job));
  let_wait(job.ranks[1], "x", 60'000);
  CHECK(finder.look(job) == "rank 1 has waited for 60 s in allreduce 'x'");
  job.ranks[1].state = "ended";
  CHECK(!finder.look(job));
}

TEST_CASE("a rank that has joined waits for those that have more data, and nothing stalls") {
  StallFinder finder(kLimit, false);
  JobPicture job = three_ranks();
  let_wait(job.ranks[0], "join", 600'000);
  job.ranks[0].used.runtime.operation = "join";
  CHECK(!finder.look(job));
}

TEST_CASE("silence is a stall only where it is said to be one, and where nobody uses libhvd") {
  JobPicture job = three_ranks();
  CHECK(!StallFinder(kLimit, false).look(job));
  CHECK(StallFinder(kLimit, true).look(job) == "no rank has printed for 60 s");
  job.ranks[2].silent_ms = 59'000;
  CHECK(!StallFinder(kLimit, true).look(job));
  job.ranks[2].silent_ms = 60'000;
  CHECK(StallFinder(kLimit, true).look(job));
  job.ranks[0].used.has_runtime = true;
  CHECK(!StallFinder(kLimit, true).look(job));
}

}  // namespace hvd::launch::stall_finder_test
