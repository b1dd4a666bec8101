// A running job as hvdrun top shows it: rows for a terminal, or JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/samples/job_picture.h"

namespace hvd::launch {

// Ranks that differ from the others come first and are marked. Lines have at most `width` columns where that is
// possible.
std::vector<std::string> top_lines(const JobPicture& job, std::size_t width, bool color);
// Returns one object on one line. hvdrun help watching lists its fields.
std::string top_json(const JobPicture& job);

}  // namespace hvd::launch
