// The summary of a timeline as text for a terminal. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "launcher/timeline/timeline_summary.h"

namespace hvd::launch {

// Returns lines, each with its newline: what the time went into, and tables of operations, ranks, phases and tensors,
// of the latter two `most` rows at most.
std::string timeline_tables(const std::string& file, const TimelineSummary& summary, std::size_t most);

}  // namespace hvd::launch
