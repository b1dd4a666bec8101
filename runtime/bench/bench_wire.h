// The protocol between `hvdrun bench` and its ranks: the ranks' arguments, and the lines that rank 0 prints.
//
// A line is words without spaces, "hvdrun-bench row what=allreduce bytes=4 ... end", so that it is readable in a saved
// log too. Decoders are total: they refuse any line that is not of this form. Pure; value types.
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
  std::int64_t iters = 0;  // number of timed calls; 0: as many as take about kAutoSeconds
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
// Reads a size: "64M" is 64 MiB; K, M, G and T are powers of 1024, in either case.
Result<std::int64_t> parse_size(std::string_view text);

// Returns kInvalid, in the user's terms, for options that cannot be measured.
Result<void> check(const BenchOptions& options);
// Returns the requested sizes, ascending; ranks round them to whole elements.
std::vector<std::int64_t> sizes_of(const BenchOptions& options);

std::vector<std::string> to_words(const BenchOptions& options);
Result<BenchOptions> from_words(std::span<const std::string> words);

// Timing is one call's time on the slowest rank, over batches of calls.
struct Timing {
  double median_s = 0;
  double fastest_s = 0;
  double p99_s = 0;
  double slowest_s = 0;
  std::int64_t calls = 0;
  std::int64_t wrong = 0;  // elements, on all ranks together, that differ from the reference
};

struct Row {
  std::string what;                // the function that was called
  std::int64_t bytes = 0;          // as nccl-tests counts: the size of the larger of input and output
  std::int64_t count = 0;          // elements of one rank's block
  std::optional<Timing> apart;     // input and output are separate
  std::optional<Timing> in_place;  // input and output are the same memory

  [[nodiscard]] std::string encode() const;
  // Returns nullopt for any other line.
  static std::optional<Row> decode(std::string_view line);
};

// Encodes a text of several lines without tabs as one line; kTune ends with such a table.
std::string encode_table(std::string_view text);
// Returns nullopt for any other line.
std::optional<std::string> decode_table(std::string_view line);

// The ratio of the bytes that the best algorithm of a call moves between ranks to the bytes of its size, from
// nccl-tests' doc/PERFORMANCE.md. busbw = bytes / seconds * this ratio, which is comparable to the bandwidth of a link.
double bus_factor(Measure measure, int ranks);

}  // namespace hvd::bench
