// HostRun is a part of a job's host file: machines whose names differ by a number that grows by one, n01 to n64, and
// that have the same number of slots. Each node of a job gets the whole list, so that in a job of thousands of nodes
// the names themselves would be most of what the launcher sends. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hvd::launch {

// More than the host file of any job has; a list of more is refused where it is read.
inline constexpr std::uint64_t kMostHostfileBytes = std::uint64_t{64} << 20U;

struct HostRun {
  std::string before;       // the name up to the number; all of it where `count` is 1
  std::string after;        // the name after the number
  std::uint32_t first = 0;  // the number
  std::uint32_t width = 0;  // digits of the number at least, by zeros in front
  std::uint32_t count = 1;
  std::int32_t slots = 1;

  static void fields(auto& m, auto& walk) { walk(m.before, m.after, m.first, m.width, m.count, m.slots); }
};

// Returns the runs of these machines, each a name and its slots, in this order.
std::vector<HostRun> runs_of(const std::vector<std::pair<std::string, int>>& machines);

// Whether the numbers are within bounds, and the host file has at most kMostHostfileBytes.
bool are_valid(const std::vector<HostRun>& runs);

// Returns the host file, "n01 slots=2" a line, as Open MPI reads it. The runs are valid.
std::string hostfile_text(const std::vector<HostRun>& runs);

}  // namespace hvd::launch
