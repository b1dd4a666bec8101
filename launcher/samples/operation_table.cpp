#include "launcher/samples/operation_table.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace hvd::launch {
namespace {

// The slowest rank is named where the others waited for so much of their time, and for so long, at least.
constexpr double kNamedShare = 0.1;
constexpr double kNamedSeconds = 0.05;

struct OfRank {
  int rank;
  const OperationSample* counts;
};

// Seconds in one operation, on the mean.
double mean_of(const OperationSample& counts) {
  return seconds_of_us(counts.lasted_us) / static_cast<double>(std::max<std::uint64_t>(counts.operations, 1));
}

double mean_wait_of(const OperationSample& counts) {
  return seconds_of_us(counts.waited_us) / static_cast<double>(std::max<std::uint64_t>(counts.operations, 1));
}

OperationRow row_of(const std::string& kind, const std::vector<OfRank>& ranks) {
  OperationRow row;
  row.kind = kind;
  for (const OfRank& each : ranks) {
    row.operations = std::max(row.operations, each.counts->operations);
    row.bytes = std::max(row.bytes, each.counts->bytes);
  }
  // Ranks that have come late, or again, saw other operations than the others.
  std::vector<OfRank> compared;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(compared),
               [&row](const OfRank& each) { return each.counts->operations >= row.operations / 2; });
  const auto quickest = std::min_element(compared.begin(), compared.end(), [](const OfRank& a, const OfRank& b) {
    return mean_of(*a.counts) < mean_of(*b.counts);
  });
  // Agreeing on an operation takes time even for the rank that comes last.
  double least_wait = mean_wait_of(*compared.front().counts);
  for (const OfRank& each : compared) {
    least_wait = std::min(least_wait, mean_wait_of(*each.counts));
  }
  double excess = 0;  // over the quickest one
  for (const OfRank& each : ranks) {
    const OperationSample& counts = *each.counts;
    const auto operations = static_cast<double>(counts.operations);
    const double more = std::max(0.0, mean_of(counts) - mean_of(*quickest->counts)) * operations;
    row.lasted += seconds_of_us(counts.lasted_us);
    row.waited += std::max({0.0, seconds_of_us(counts.waited_us) - least_wait * operations, more});
    excess += more;
  }
  const auto count = static_cast<double>(ranks.size());
  row.lasted /= count;
  row.waited /= count;
  excess /= count;
  if (excess > kNamedShare * row.lasted && excess > kNamedSeconds) {
    row.slowest = quickest->rank;
  }
  return row;
}

}  // namespace

std::vector<OperationRow> operation_table(const JobPicture& job) {
  std::map<std::string, std::vector<OfRank>> by_kind;
  for (const RankShown& rank : job.ranks) {
    for (const OperationSample& counts : rank.used.runtime.kinds) {
      by_kind[counts.kind].push_back({rank.rank, &counts});
    }
  }
  std::vector<OperationRow> rows;
  for (const auto& [kind, ranks] : by_kind) {
    rows.push_back(row_of(kind, ranks));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const OperationRow& a, const OperationRow& b) { return a.lasted > b.lasted; });
  return rows;
}

}  // namespace hvd::launch
