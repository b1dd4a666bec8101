// core/tuning, core/tuning_table and abi/tuning_source: the sizes that a job is tuned to, their file, and who reads it.
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "runtime/abi/tuning_source.h"
#include "runtime/base/machine.h"
#include "runtime/bench/tune_bench.h"
#include "runtime/core/tuning_table.h"
#include "tests/multi/thread_job.h"

namespace hvd::tuning_test {
namespace {

TuningTable some_table() {
  TuningTable table;
  table.place = {4, 2, 2, "A \"quoted\" \\ name, µ"};
  table.tuning.chunk_bytes = 64U << 10U;
  table.tuning.quick_bytes = 0;
  return table;
}

std::string error_of(const std::string& text) {
  const auto table = parse_tuning_table(text, "t.json");
  return table.ok() ? "" : table.error().message();
}

std::string with(const std::string& member) {
  return "{\"hvd_tuning\": 1,\n\"ranks\": 2, \"nodes\": 1, \"ranks_per_node\": 2,\n\"processor\": \"x\"" + member + "}";
}

// A job of two ranks on this machine, as rank 0 or 1 sees it.
Config config_with(const std::string& tuning, int rank = 0) {
  Config config;
  config.map = test::map_of({2}, rank);
  config.tuning = tuning;
  return config;
}

TuningTable table_for_here() {
  TuningTable table = some_table();
  table.place = place_of(test::map_of({2}, 0), processor_name());
  return table;
}

}  // namespace

TEST_CASE("a table is read back as it was written, and as ranks tell it each other") {
  const TuningTable table = some_table();
  CHECK(parse_tuning_table(to_json(table), "t").value() == table);
  CHECK(decode_tuning(encode(table.tuning)).value() == table.tuning);
  CHECK(check(Tuning{}).ok());
  CHECK(text_of(table.tuning).starts_with("quick_bytes 0, "));
}

TEST_CASE("choices that a table leaves out are the runtime's own") {
  const auto table = parse_tuning_table(with(",\n \"wire_bytes\": 65536"), "t.json");
  REQUIRE(table.ok());
  Tuning expected;
  expected.wire_bytes = 65536;
  CHECK(table.value().tuning == expected);
  CHECK(table.value().place == TunedPlace{2, 1, 2, "x"});
}

TEST_CASE("what is wrong in a table is named with its line") {
  CHECK(error_of("") == "t.json:1: expected '{'; hvdrun bench --tune writes such a file");
  CHECK(error_of("garbage\n") == "t.json:1: expected '{'; hvdrun bench --tune writes such a file");
  CHECK(error_of(with("\n")) == "");
  CHECK(error_of(with(",\n\"chunks\": 1")).starts_with("t.json:4: 'chunks' is no key of a tuning table; these are: "));
  CHECK(error_of(with(",\n\"chunk_bytes\": 1")) ==
        "t.json:4: 'chunk_bytes' is 1, expected a number from 65536 to 67108864");
  CHECK(error_of(with(",\n\"chunk_bytes\": \"1\"")) ==
        "t.json:4: 'chunk_bytes' is '1', expected a number from 65536 to 67108864");
  CHECK(error_of(with(",\n\"chunk_bytes\": 65537")) == "t.json:4: chunk_bytes is 65537, expected a multiple of 64");
  CHECK(error_of(with(",\n\"ranks\": 2")) == "t.json:4: 'ranks' is there twice");
  for (const char* number : {"-1", "1.5", "1e3", "01", "true", "[1]", "99999999999999999999", ""}) {
    CHECK(error_of(with(",\n\n\"wire_bytes\": " + std::string(number))) ==
          "t.json:5: 'wire_bytes' is neither a whole number nor a text");
  }
  CHECK(error_of(with("") + "x") == "t.json:3: there is more behind the table's '}'");
  CHECK(error_of(with(",")).starts_with("t.json:3: expected '\"'"));
  CHECK(error_of("{\"hvd_tuning\": 2}").starts_with("t.json:1: this is a table of another version"));
  CHECK(error_of("{\"hvd_tuning\": 1}\n") == "t.json:2: 'ranks' is missing; hvdrun bench --tune writes it");
  CHECK(error_of(with(",\n\"a\\n\": 1")) == "t.json:4: a text has no end, or what it cannot hold");
  const std::string whole = to_json(some_table());
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    CHECK_FALSE(parse_tuning_table(whole.substr(0, size), "t").ok());
  }
}

TEST_CASE("a cut, longer or impossible word of rank 0 is refused") {
  const std::string whole = encode(Tuning{});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(decode_tuning(whole.substr(0, size)).ok());
  }
  CHECK_FALSE(decode_tuning(whole + "x").ok());
  for (const TuningField& field : tuning_fields()) {
    Tuning tuning;
    tuning.*field.value = field.most + 64;
    CHECK(decode_tuning(encode(tuning)).error().message().find(field.name) != std::string::npos);
  }
}

TEST_CASE("rank 0's table of this placement is used, from its file or as it is") {
  const TuningTable table = table_for_here();
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/t.json";
  std::ofstream(path) << to_json(table);
  for (const std::string& source : {path, to_json(table)}) {
    test::LinesLog log;
    Config config = config_with(source);
    REQUIRE(apply_tuning(config, log).ok());
    CHECK(config.engine.tuning == table.tuning);
    CHECK(config.engine.fusion_threshold_bytes == table.tuning.fusion_bytes);
    CHECK(log.count_of("is in use") == 1);
  }
}

TEST_CASE("what the user has said of fusion stays") {
  TuningTable table = table_for_here();
  table.tuning.fusion_bytes = 1 << 20;
  test::LinesLog log;
  Config config = config_with(to_json(table));
  config.engine.autotune.keeps_fusion = true;
  config.engine.fusion_threshold_bytes = 77;
  REQUIRE(apply_tuning(config, log).ok());
  CHECK(config.engine.fusion_threshold_bytes == 77);
}

TEST_CASE("a table of another placement or processor is ignored, with one notice") {
  const TunedPlace here = table_for_here().place;
  for (const TunedPlace& other :
       {TunedPlace{4, 1, 4, here.processor}, TunedPlace{2, 2, 1, here.processor}, TunedPlace{2, 1, 2, "another"}}) {
    test::LinesLog log;
    Config config = config_with(to_json({other, some_table().tuning}));
    REQUIRE(apply_tuning(config, log).ok());
    CHECK(config.engine.tuning == Tuning{});
    REQUIRE(log.lines().size() == 1);
    CHECK(log.count_of("was made for " + text_of(other) + "; this job has " + text_of(here)) == 1);
  }
}

TEST_CASE("a table that cannot be read ends rank 0's start, and is nothing to the others") {
  const test::ScratchDir dir;
  const std::string garbage = dir.path() + "/garbage";
  std::ofstream(garbage) << "{\n\"ranks\" 2}";
  const std::string huge = dir.path() + "/huge";
  std::ofstream(huge) << std::string(1U << 20U, ' ');
  test::LinesLog log;
  const auto said = [&](const std::string& source) {
    Config config = config_with(source);
    const auto applied = apply_tuning(config, log);
    return applied.ok() ? "" : applied.error().message();
  };
  CHECK(said(garbage) == garbage + ":2: expected ':'; hvdrun bench --tune writes such a file");
  CHECK(said("{").starts_with("HVD_TUNING:1: "));
  CHECK(said(dir.path() + "/none").starts_with("HVD_TUNING: cannot read " + dir.path() + "/none"));
  CHECK(said(dir.path()).starts_with("HVD_TUNING: cannot read " + dir.path()));
  CHECK(said(huge).find("more than 65536 bytes") != std::string::npos);
  Config other = config_with(garbage, 1);
  CHECK(apply_tuning(other, log).ok());
  CHECK(log.lines().empty());
}

TEST_CASE("a setting is chosen only where it is clearly faster than the runtime's own") {
  CHECK(bench::choose({0.0, -0.01, 0.5}, 0) == 0);
  CHECK(bench::choose({0.0, -0.05, 0.5}, 0) == 1);
  CHECK(bench::choose({0.0, 0.1, -0.2}, 1) == 2);
  CHECK(bench::choose({1.0}, 0) == 0);
}

}  // namespace hvd::tuning_test
