// Ranks that are told different tables (HVD_TUNING): all do as rank 0's says, and their results are as ever.
#include <cstring>
#include <fstream>

#include <doctest/doctest.h>

#include "runtime/base/machine.h"
#include "runtime/core/tuning_table.h"
#include "tests/multi/engine/engine_job.h"

namespace hvd::test::engine_tuning_test {
namespace {

// Everything at its smallest: many pieces, and nothing goes a quick way.
Tuning small_pieces() {
  Tuning tuning;
  for (const TuningField& field : tuning_fields()) {
    tuning.*field.value = field.least;
  }
  tuning.fusion_bytes = 1U << 20U;
  return tuning;
}

std::string table_of(const EngineJob& job, const Tuning& tuning) {
  return to_json({place_of(job.map(0), processor_name()), tuning});
}

// What each rank is told, by its number; "" for those behind the last.
EngineJob::Adjust telling(std::vector<std::string> tables) {
  return [tables = std::move(tables)](int rank, Config& config) {
    const auto index = static_cast<std::size_t>(rank);
    config.tuning = index < tables.size() ? tables[index] : "";
  };
}

void check_sums(EngineJob& job) {
  on_all(job.size(), [&](int rank) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{20'000}, std::size_t{500'000}}) {
      FloatOp op("t" + std::to_string(count), count, static_cast<float>(rank + 1));
      CHECK(outcome(hvd_execute(job.at(rank), &op.op, nullptr)).error == "");
      const auto ranks = static_cast<float>(job.size());
      CHECK(op.output == std::vector<float>(count, ranks * (ranks + 1) / 2));
    }
  });
}

std::uint64_t engine_operations(hvd_ctx* ctx) {
  hvd_counters counters = HVD_COUNTERS_INIT;
  REQUIRE(outcome(hvd_counters_read(ctx, 0, &counters)).error == "");
  return counters.requests + counters.known;
}

}  // namespace

TEST_CASE("ranks that are told other tables, garbage or none all do as rank 0's says") {
  for (const Nodes& nodes : {Nodes{4}, Nodes{2, 2}}) {
    EngineJob plain(nodes);
    const std::string first = table_of(plain, small_pieces());
    Tuning large;
    large.chunk_bytes = 1U << 20U;
    large.wire_bytes = 1U << 20U;
    large.segment_bytes = 1U << 20U;
    const std::string second = table_of(plain, large);
    EngineJob job(nodes, {}, LogLevel::kError, telling({first, second, "/nowhere/table", "{garbage"}));
    check_sums(job);
    for (int rank = 0; rank < job.size(); ++rank) {
      CHECK(engine_operations(job.at(rank)) == 4);  // none was quick, on any rank
    }
  }
}

TEST_CASE("where rank 0 has no table the others' are not used") {
  const Nodes nodes = {1, 2};
  EngineJob plain(nodes);
  EngineJob job(nodes, {}, LogLevel::kError, telling({"", table_of(plain, small_pieces()), "{garbage"}));
  check_sums(job);
}

TEST_CASE("a process set made later moves its data as the job does") {
  EngineJob plain({2, 1});
  EngineJob job({2, 1}, {}, LogLevel::kError, telling({table_of(plain, small_pieces())}));
  on_all(3, [&](int rank) {
    const std::int32_t ranks[] = {0, 1};
    std::int32_t pair = 0;
    CHECK(outcome(hvd_process_set_add(job.at(rank), ranks, 2, &pair)).error == "");
    if (rank < 2) {
      FloatOp op("pair", 100'000, static_cast<float>(rank + 1));
      op.op.process_set = pair;
      CHECK(outcome(hvd_execute(job.at(rank), &op.op, nullptr)).error == "");
      CHECK(op.output == std::vector<float>(100'000, 3.0F));
      FloatOp tiny("tiny", 1, 1.0F);
      tiny.op.process_set = pair;
      CHECK(outcome(hvd_execute(job.at(rank), &tiny.op, nullptr)).error == "");
      hvd_counters counters = HVD_COUNTERS_INIT;
      CHECK(outcome(hvd_counters_read(job.at(rank), pair, &counters)).error == "");
      CHECK(counters.requests + counters.known == 2);
    }
  });
}

TEST_CASE("garbage ends rank 0's start before it meets the others") {
  Config config;
  config.map = map_of({2}, 0);
  config.log_level = LogLevel::kError;
  config.tuning = "{garbage";
  const auto made = make_context(config, nullptr);
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().message().starts_with("HVD_TUNING:1: "));
}

}  // namespace hvd::test::engine_tuning_test
