#include "runtime/bench/bench_wire.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::bench {
namespace {

constexpr std::string_view kLineBegin = "hvdrun-bench row ";
constexpr std::string_view kTableBegin = "hvdrun-bench table ";
// without it, the line of a rank that was killed could pass for a shorter one
constexpr std::string_view kLineEnd = " end";
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40U;
constexpr std::int64_t kMaxCalls = 1'000'000'000;

constexpr std::array<std::pair<const char*, Measure>, 9> kMeasures = {{{"allreduce", Measure::kAllreduce},
                                                                       {"allgather", Measure::kAllgather},
                                                                       {"broadcast", Measure::kBroadcast},
                                                                       {"alltoall", Measure::kAlltoall},
                                                                       {"reducescatter", Measure::kReducescatter},
                                                                       {"latency", Measure::kLatency},
                                                                       {"gradients", Measure::kGradients},
                                                                       {"pairs", Measure::kPairs},
                                                                       {"tune", Measure::kTune}}};
constexpr std::array<std::pair<const char*, ReduceOp>, 5> kOps = {{{"sum", ReduceOp::kSum},
                                                                   {"prod", ReduceOp::kProduct},
                                                                   {"min", ReduceOp::kMin},
                                                                   {"max", ReduceOp::kMax},
                                                                   {"avg", ReduceOp::kAverage}}};

template <typename Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, value] : table) {
    names.emplace_back(name);
  }
  return names;
}

template <typename Value, typename Table>
Result<Value> value_in(const Table& table, std::string_view name, const char* what) {
  for (const auto& [known, value] : table) {
    if (name == known) {
      return value;
    }
  }
  return Error(Code::kInvalid, std::string(what) + " '" + std::string(name) + "': expected " + joined(names_in(table)));
}

template <typename Table, typename Value>
const char* name_in(const Table& table, Value value) {
  for (const auto& [name, known] : table) {
    if (known == value) {
      return name;
    }
  }
  return "?";
}

std::string text_of(double value) {
  std::array<char, 64> digits{};
  const auto [end, failed] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string encode_timing(const char* name, const Timing& t) {
  return std::string(" ") + name + "=" + text_of(t.median_s) + "/" + text_of(t.fastest_s) + "/" + text_of(t.p99_s) +
         "/" + text_of(t.slowest_s) + "/" + std::to_string(t.calls) + "/" + std::to_string(t.wrong);
}

std::optional<Timing> decode_timing(std::string_view text) {
  Timing timing;
  for (double* seconds : {&timing.median_s, &timing.fastest_s, &timing.p99_s, &timing.slowest_s}) {
    const auto value = parse_number<double>(take_until(text, '/'));
    if (!value || !(*value >= 0) || !std::isfinite(*value)) {
      return std::nullopt;
    }
    *seconds = *value;
  }
  for (std::int64_t* count : {&timing.calls, &timing.wrong}) {
    const auto value = parse_number<std::int64_t>(take_until(text, '/'));
    if (!value || *value < 0) {
      return std::nullopt;
    }
    *count = *value;
  }
  return text.empty() ? std::optional(timing) : std::nullopt;
}

bool decode_field(std::string_view field, Row& row) {
  const std::string_view name = take_until(field, '=');
  if (name == "what") {
    row.what = field;
    return !field.empty();
  }
  if (name == "bytes" || name == "count") {
    const auto value = parse_number<std::int64_t>(field);
    (name == "bytes" ? row.bytes : row.count) = value.value_or(0);
    return value && *value >= 0;
  }
  if (name == "apart" || name == "in_place") {
    auto timing = decode_timing(field);
    const bool is_good = timing.has_value();
    (name == "apart" ? row.apart : row.in_place) = std::move(timing);
    return is_good;
  }
  return false;
}

// Returns the text between a line's begin and end; nullopt if either is missing.
std::optional<std::string_view> inside_of(std::string_view line, std::string_view begin) {
  line = line.substr(0, line.find_last_not_of("\r\n") + 1);
  if (!line.starts_with(begin) || !line.ends_with(kLineEnd) || line.size() < begin.size() + kLineEnd.size()) {
    return std::nullopt;
  }
  line.remove_prefix(begin.size());
  line.remove_suffix(kLineEnd.size());
  return line;
}

}  // namespace

std::vector<std::string> measure_names() {
  auto names = names_in(kMeasures);
  names.pop_back();  // an option of its own selects tune, since it writes a file
  return names;
}

std::vector<std::string> op_names() {
  return names_in(kOps);
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (int number = 0; number < kDtypeCount; ++number) {
    names.emplace_back(hvd::name_of(static_cast<Dtype>(number)));
  }
  return names;
}

const char* name_of(Measure measure) {
  return name_in(kMeasures, measure);
}

Result<Measure> measure_of(std::string_view name) {
  return value_in<Measure>(kMeasures, name, "measure");
}

Result<ReduceOp> op_of(std::string_view name) {
  return value_in<ReduceOp>(kOps, name, "--op");
}

Result<Dtype> type_of(std::string_view name) {
  for (int number = 0; number < kDtypeCount; ++number) {
    if (name == hvd::name_of(static_cast<Dtype>(number))) {
      return static_cast<Dtype>(number);
    }
  }
  return Error(Code::kInvalid, "--type '" + std::string(name) + "': expected " + joined(type_names()));
}

Result<std::int64_t> parse_size(std::string_view text) {
  const auto bytes = parse_byte_count(text, kMaxBytes);
  if (!bytes) {
    return Error(Code::kInvalid,
                 "size '" + std::string(text) + "': expected bytes, or a number with K, M, G or T, 1T at most");
  }
  return static_cast<std::int64_t>(*bytes);
}

Result<void> check(const BenchOptions& options) {
  if (options.min_bytes < 1 || options.max_bytes < options.min_bytes || options.max_bytes > kMaxBytes) {
    return Error(Code::kInvalid, "--min " + std::to_string(options.min_bytes) + " and --max " +
                                     std::to_string(options.max_bytes) + ": expected bytes, the first not above the " +
                                     "second");
  }
  if (options.factor < 2 || options.factor > kMaxBytes) {
    return Error(Code::kInvalid, "--factor " + std::to_string(options.factor) + ": expected 2 or more");
  }
  if (options.iters < 0 || options.iters > kMaxCalls || options.warmup < 0 || options.warmup > kMaxCalls) {
    return Error(Code::kInvalid, "--iters and --warmup: expected 0 to " + std::to_string(kMaxCalls) + " calls");
  }
  const bool is_floating = options.dtype == Dtype::kFloat16 || options.dtype == Dtype::kBfloat16 ||
                           options.dtype == Dtype::kFloat32 || options.dtype == Dtype::kFloat64;
  if (options.op == ReduceOp::kAverage && !is_floating) {
    return Error(Code::kInvalid, std::string("--op avg needs a floating --type, not ") + hvd::name_of(options.dtype));
  }
  return {};
}

std::vector<std::int64_t> sizes_of(const BenchOptions& options) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = options.min_bytes; size <= options.max_bytes; size *= options.factor) {
    sizes.push_back(size);
    if (size > options.max_bytes / options.factor) {
      break;
    }
  }
  return sizes;
}

std::vector<std::string> to_words(const BenchOptions& options) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  return {std::string(kRankWord),    name_of(options.measure), number(options.min_bytes),
          number(options.max_bytes), number(options.factor),   hvd::name_of(options.dtype),
          name_in(kOps, options.op), number(options.iters),    number(options.warmup)};
}

Result<BenchOptions> from_words(std::span<const std::string> words) {
  constexpr std::size_t kWords = 9;
  if (words.size() != kWords || words[0] != kRankWord) {
    return Error(Code::kInvalid, "not the words of a rank that measures; start it with hvdrun bench");
  }
  BenchOptions options;
  HVD_TRY_ASSIGN(options.measure, measure_of(words[1]));
  HVD_TRY_ASSIGN(options.dtype, type_of(words[5]));
  HVD_TRY_ASSIGN(options.op, op_of(words[6]));
  const std::pair<std::size_t, std::int64_t*> numbers[] = {{2, &options.min_bytes},
                                                           {3, &options.max_bytes},
                                                           {4, &options.factor},
                                                           {7, &options.iters},
                                                           {8, &options.warmup}};
  for (const auto& [index, number] : numbers) {
    const auto value = parse_number<std::int64_t>(words[index]);
    if (!value) {
      return Error(Code::kInvalid, "'" + words[index] + "' is no number");
    }
    *number = *value;
  }
  HVD_TRY(check(options));
  return options;
}

std::string Row::encode() const {
  std::string line =
      std::string(kLineBegin) + "what=" + what + " bytes=" + std::to_string(bytes) + " count=" + std::to_string(count);
  if (apart) {
    line += encode_timing("apart", *apart);
  }
  if (in_place) {
    line += encode_timing("in_place", *in_place);
  }
  return line.append(kLineEnd);
}

std::optional<Row> Row::decode(std::string_view line) {
  const auto inside = inside_of(line, kLineBegin);
  if (!inside) {
    return std::nullopt;
  }
  line = *inside;
  Row row;
  while (!line.empty()) {
    if (!decode_field(take_until(line, ' '), row)) {
      return std::nullopt;
    }
  }
  return row.what.empty() || (!row.apart && !row.in_place) ? std::nullopt : std::optional(std::move(row));
}

std::string encode_table(std::string_view text) {
  std::string line(kTableBegin);
  line += text;
  std::replace(line.begin(), line.end(), '\n', '\t');
  return line.append(kLineEnd);
}

std::optional<std::string> decode_table(std::string_view line) {
  const auto inside = inside_of(line, kTableBegin);
  if (!inside) {
    return std::nullopt;
  }
  std::string text(*inside);
  std::replace(text.begin(), text.end(), '\t', '\n');
  return text;
}

double bus_factor(Measure measure, int ranks) {
  const double n = ranks;
  switch (measure) {
    case Measure::kAllreduce:
    case Measure::kLatency:
    case Measure::kGradients:
      return 2 * (n - 1) / n;
    case Measure::kAllgather:
    case Measure::kAlltoall:
    case Measure::kReducescatter:
      return (n - 1) / n;
    case Measure::kBroadcast:
    case Measure::kPairs:
    case Measure::kTune:
      return 1;
  }
  return 1;
}

}  // namespace hvd::bench
