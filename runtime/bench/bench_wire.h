// What `hvdrun bench` and its ranks say to each other: the ranks' arguments, and the lines that rank 0 prints.
//
// A line is words without spaces, "hvdrun-bench row what=allreduce bytes=4 ... end", so that it reads well in a kept
// log too. Decoders are total: what is not such a line is refused. Pure; value types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/core/dtype.h"

namespace hvd::bench {

enum class Measure : std::uint8_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReducescatter,
  kLatency,
  kGradients,
  kPairs,
  kTune
};

struct BenchOptions {
  Measure measure = Measure::kAllreduce;
  std::int64_t min_bytes = 4;
  std::int64_t max_bytes = 64 << 20;
  std::int64_t factor = 4;  // from one size to the next; above 1
  Dtype dtype = Dtype::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t iters = 0;  // calls that are timed; 0: for about kAutoSeconds
  std::int64_t warmup = 5;
};

// The first argument of a rank that measures.
inline constexpr std::string_view kRankWord = "bench";

// The measures' names, as the command line has them.
std::vector<std::string> measure_names();
std::vector<std::string> type_names();
std::vector<std::string> op_names();
const char* name_of(Measure measure);
Result<Measure> measure_of(std::string_view name);
Result<Dtype> type_of(std::string_view name);
Result<ReduceOp> op_of(std::string_view name);
// "64M" is 64 MiB; K, M and G are powers of 1024, in either case.
Result<std::int64_t> parse_size(std::string_view text);

// kInvalid: what cannot be measured, in the user's words.
Result<void> check(const BenchOptions& options);
// The sizes, rising, that are asked for; ranks make whole elements of them.
std::vector<std::int64_t> sizes_of(const BenchOptions& options);

std::vector<std::string> to_words(const BenchOptions& options);
Result<BenchOptions> from_words(std::span<const std::string> words);

// One call's time, of the slowest rank, over batches of calls.
struct Timing {
  double median_s = 0;
  double fastest_s = 0;
  double p99_s = 0;
  double slowest_s = 0;
  std::int64_t calls = 0;
  std::int64_t wrong = 0;  // elements, on all ranks together, that differ from the reference
};

struct Row {
  std::string what;                // what was called
  std::int64_t bytes = 0;          // as nccl-tests counts: of the larger of input and output
  std::int64_t count = 0;          // elements of one rank's block
  std::optional<Timing> apart;     // input and output are two
  std::optional<Timing> in_place;  // they are one

  [[nodiscard]] std::string encode() const;
  // nullopt: some other line.
  static std::optional<Row> decode(std::string_view line);
};

// A text of several lines, each without tabs, as one line: the table that kTune ends with.
std::string encode_table(std::string_view text);
// nullopt: some other line.
std::optional<std::string> decode_table(std::string_view line);

// Of the bytes that a call moves between ranks to those of its size, for the best algorithm: nccl-tests'
// doc/PERFORMANCE.md. busbw = bytes / seconds * this, which is comparable to what a link carries.
double bus_factor(Measure measure, int ranks);

}  // namespace hvd::bench
