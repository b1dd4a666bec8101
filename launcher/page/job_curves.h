// JobCurves is what the hosts and ranks of a job used over time, for its page: a bounded number of points, which stand
// for more time the longer the job lasts.
//
// Pure. Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/samples/job_picture.h"
#include "launcher/samples/operation_table.h"

namespace hvd::launch {

// One line: a value for each point of time, NaN where nothing is known.
using Curve = std::vector<float>;

struct NodeCurves {
  std::string host;
  std::uint64_t memory_total = 0;  // bytes
  Curve cores;                     // processors in use
  Curve memory;                    // bytes in use, by whomever
  Curve gpu_busy;                  // percent, the mean of its GPUs; empty: it has none
  Curve gpu_memory;                // bytes, of all its GPUs together
  // The most of all pictures; points are means of several once the job has lasted for long.
  double most_cores = 0;
  double most_memory = 0;
  double most_gpu_memory = 0;
};

// JobTotals is what a job has done so far: operations of the rank that has done most, and the output of all ranks.
struct JobTotals {
  std::uint64_t operations = 0;
  std::uint64_t operation_bytes = 0;
  std::vector<OperationRow> operation_rows;
  std::uint64_t lines = 0;
  std::uint64_t output_bytes = 0;
};

class JobCurves {
 public:
  // `at`: seconds since the job began. A picture in which no node has told anything is left out.
  void take(double at, const JobPicture& picture);
  // All ranks are started anew: the next pictures count from nothing.
  void start_again() { before_ = totals_; }

  [[nodiscard]] const std::vector<double>& times() const { return times_; }
  // Of the last picture, whether or not it has points of its own; 0: there was none.
  [[nodiscard]] double latest() const { return latest_; }
  [[nodiscard]] const std::vector<NodeCurves>& nodes() const { return nodes_; }
  [[nodiscard]] const Curve& collective_bytes() const { return collective_bytes_; }  // a second, of the busiest rank
  [[nodiscard]] const Curve& printed_lines() const { return printed_lines_; }        // a second, of all ranks
  // The most of these that there was.
  [[nodiscard]] double most_collective_bytes() const { return most_collective_bytes_; }
  [[nodiscard]] double most_printed_lines() const { return most_printed_lines_; }
  // The last picture's, on top of those of the starts before.
  [[nodiscard]] const JobTotals& totals() const { return totals_; }
  // Hosts whose mean is far from the others' (their median), one sentence each.
  [[nodiscard]] std::vector<std::string> outliers() const;

 private:
  [[nodiscard]] std::size_t most_points() const;
  void halve();
  void take_node(NodeCurves& node, const NodeShown& shown) const;

  double latest_ = 0;
  double step_ = 0;  // seconds between two points at least
  std::vector<double> times_;
  std::vector<NodeCurves> nodes_;
  Curve collective_bytes_;
  Curve printed_lines_;
  double most_collective_bytes_ = 0;
  double most_printed_lines_ = 0;
  JobTotals totals_;
  JobTotals before_;                // of the starts before
  std::uint64_t lines_before_ = 0;  // when the last point was made
};

// Returns the mean of what is known of a curve; NaN: nothing is.
double mean_of(const Curve& curve);

}  // namespace hvd::launch
