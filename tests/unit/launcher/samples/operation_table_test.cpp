#include "launcher/samples/operation_table.h"

#include <doctest/doctest.h>

namespace hvd::launch::operation_table_test {
namespace {

JobPicture ranks_with(const std::vector<std::vector<OperationSample>>& counts) {
  JobPicture job;
  job.nodes.resize(1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    RankShown rank;
    rank.rank = static_cast<std::int32_t>(i);
    rank.used.runtime.kinds = counts[i];
    job.ranks.push_back(rank);
  }
  return job;
}

}  // namespace

TEST_CASE("operations: counts of the busiest rank, mean times, the longest first") {
  CHECK(operation_table(ranks_with({{}, {}})).empty());
  const auto rows = operation_table(ranks_with({{{"barrier", 1, 0, 1000, 0}, {"allreduce", 10, 80, 2'000'000, 0}},
                                                {{"allreduce", 12, 96, 2'200'000, 200'000}}}));
  REQUIRE(rows.size() == 2);
  CHECK((rows[0].kind == "allreduce" && rows[0].operations == 12 && rows[0].bytes == 96));
  CHECK(rows[0].lasted == doctest::Approx(2.1));
  CHECK((rows[1].kind == "barrier" && rows[1].operations == 1 && rows[1].waited == 0));
}

TEST_CASE(
    "operations: the rank that came last spent least time in them, and the others' waiting is at least what they spent "
    "more") {
  const auto rows = operation_table(ranks_with({{{"allreduce", 100, 8, 9'000'000, 8'500'000}},
                                                {{"allreduce", 100, 8, 1'000'000, 10'000}},
                                                {{"allreduce", 100, 8, 9'000'000, 0}}}));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].slowest == 1);
  CHECK(rows[0].waited == doctest::Approx((8.5 + 0.01 + 8) / 3));
  // Where all wait alike, nobody is slow.
  const auto equal = operation_table(
      ranks_with({{{"allreduce", 10, 8, 1'000'000, 800'000}}, {{"allreduce", 10, 8, 1'000'000, 800'000}}}));
  CHECK((equal[0].waited == 0 && equal[0].slowest == -1));
}

TEST_CASE("operations: no rank is named for a small difference, nor one that has joined late") {
  CHECK(operation_table(ranks_with({{{"allreduce", 9, 8, 1'000'000, 0}}, {{"allreduce", 9, 8, 1'050'000, 0}}}))[0]
            .slowest == -1);
  CHECK(operation_table(ranks_with({{{"allreduce", 9, 8, 100, 0}}, {{"allreduce", 9, 8, 10'000, 0}}}))[0].slowest ==
        -1);
  CHECK(operation_table(ranks_with({{{"allreduce", 10'000, 8, 100'000'000, 0}}, {{"allreduce", 5, 8, 5'000, 0}}}))[0]
            .slowest == -1);
}

}  // namespace hvd::launch::operation_table_test
