// Why hosts could not be reached, a line for each cause with all of its hosts: of ten thousand names that do not
// resolve nobody reads ten thousand lines. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd::launch {

// Host and message, in the order of nodes. Messages are of one cause where they differ by the host's name or by an
// address alone. Up to three hosts have a line each; of many the first are named, with the number of all others.
std::vector<std::string> unopened_lines(const std::vector<std::pair<std::string, std::string>>& hosts);

}  // namespace hvd::launch
