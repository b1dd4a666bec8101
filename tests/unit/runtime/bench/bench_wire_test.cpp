// runtime/bench/bench_wire: the words and lines between `hvdrun bench` and its ranks.
#include "runtime/bench/bench_wire.h"

#include <doctest/doctest.h>

namespace hvd::bench_wire_test {
using namespace hvd::bench;  // NOLINT(google-build-using-namespace)

TEST_CASE("what is to be measured comes through the words of a command line") {
  BenchOptions options;
  options.measure = Measure::kAlltoall;
  options.min_bytes = 8;
  options.max_bytes = 1 << 20;
  options.factor = 2;
  options.dtype = hvd::Dtype::kBfloat16;
  options.op = hvd::ReduceOp::kMax;
  options.iters = 7;
  options.warmup = 0;
  const auto words = to_words(options);
  const auto back = from_words(words);
  REQUIRE(back.ok());
  CHECK(to_words(back.value()) == words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto broken = words;
    broken[i] = "x";
    CHECK_FALSE(from_words(broken).ok());
    broken.erase(broken.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK_FALSE(from_words(broken).ok());
  }
}

TEST_CASE("sizes are understood with units, and nothing else is") {
  CHECK(parse_size("4").value() == 4);
  CHECK(parse_size("64k").value() == 65536);
  CHECK(parse_size("2M").value() == 2 << 20);
  CHECK(parse_size("1G").value() == 1 << 30);
  for (const char* wrong : {"", "K", "0", "-4", "1.5M", "4MB", "4 M", "99999999999999999999", "9999999G"}) {
    CHECK_FALSE(parse_size(wrong).ok());
  }
}

TEST_CASE("sizes rise by the factor and end at the largest") {
  BenchOptions options;
  options.min_bytes = 4;
  options.max_bytes = 100;
  options.factor = 5;
  CHECK(sizes_of(options) == std::vector<std::int64_t>{4, 20, 100});
  options.max_bytes = 99;
  CHECK(sizes_of(options) == std::vector<std::int64_t>{4, 20});
  options.max_bytes = 4;
  CHECK(sizes_of(options) == std::vector<std::int64_t>{4});
}

TEST_CASE("a row comes through its line, and what is no row is none") {
  Row row;
  row.what = "allreduce";
  row.bytes = 1 << 20;
  row.count = 1 << 18;
  row.apart = Timing{1.5e-4, 1e-4, 2e-4, 3e-4, 20, 0};
  row.in_place = Timing{0.1, 0.05, 0.2, 0.3, 5, 17};
  const auto back = Row::decode(row.encode() + "\n");
  REQUIRE(back);
  CHECK(back->encode() == row.encode());
  const std::string line = row.encode();
  for (std::size_t size = 0; size < line.size(); ++size) {
    CHECK_FALSE(Row::decode(line.substr(0, size)));
  }
  for (const char* wrong :
       {"", "epoch 1", "hvdrun-bench row end", "hvdrun-bench row  end", "hvdrun-bench row what=a bytes=4 end",
        "hvdrun-bench row what=a bytes=-4 apart=1/1/1/1/1/0 end", "hvdrun-bench row bytes=4 apart=1/1/1/1/1/0 end",
        "hvdrun-bench row what=a apart=1/1/1/1/1 end", "hvdrun-bench row what=a apart=nan/1/1/1/1/0 end",
        "hvdrun-bench row what=a apart=1/1/1/1/1/0/0 end", "hvdrun-bench row what=a apart=1/1/1/1/1/0 color=red end"}) {
    CHECK_FALSE(Row::decode(wrong));
  }
}

TEST_CASE("a table comes through its line, whole or not at all") {
  const std::string table = "{\n  \"processor\": \"end\"\n}\n";
  const std::string line = encode_table(table);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(decode_table(line + "\n").value_or("") == table);
  for (std::size_t size = 0; size < line.size(); ++size) {
    CHECK_FALSE(decode_table(line.substr(0, size)));
  }
  CHECK_FALSE(decode_table("hvdrun-bench row what=a apart=1/1/1/1/1/0 end"));
  CHECK_FALSE(Row::decode(line));
}

TEST_CASE("what cannot be measured is refused in words") {
  BenchOptions options;
  options.op = hvd::ReduceOp::kAverage;
  CHECK(check(options).ok());
  options.dtype = hvd::Dtype::kInt32;
  CHECK(check(options).error().message() == "--op avg needs a floating --type, not int32");
  CHECK_FALSE(measure_of("gather").ok());
  CHECK_FALSE(type_of("float").ok());
  CHECK_FALSE(op_of("").ok());
}

}  // namespace hvd::bench_wire_test
