// operation_table() makes of what the ranks count a table of the job's collectives: how many, how much, how long, and
// for whom the others waited. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/samples/job_picture.h"

namespace hvd::launch {

// All operations of one kind. Counts are those of the rank that has done most; times are in seconds, summed over the
// operations of a rank, and the mean of the ranks.
struct OperationRow {
  std::string kind;  // "allreduce"
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
  double lasted = 0;
  // Of these, the time for slower ranks: what libhvd has measured, less what the rank that waited least had to wait, or
  // what a rank took longer than the quickest one, because all ranks leave an operation together.
  double waited = 0;
  // The rank that came last, as far as sums can say: it spent least time in the operations. -1: none stands out.
  int slowest = -1;
};

inline double seconds_of_us(std::uint64_t us) {
  return static_cast<double>(us) / 1e6;
}

// The kinds that took the most time come first. Empty: no rank has told anything.
std::vector<OperationRow> operation_table(const JobPicture& job);

}  // namespace hvd::launch
