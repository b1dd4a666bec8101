// This function reports why hosts could not be reached, in one line per cause that names all of its hosts. Nobody reads
// ten thousand lines about ten thousand names that do not resolve. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd::launch {

// `hosts` holds host and message, in the order of nodes. Messages have one cause when they differ only by the host's
// name or by an address. Up to three hosts get a line each; of more, the first are named and the rest are counted.
std::vector<std::string> unopened_lines(const std::vector<std::pair<std::string, std::string>>& hosts);

}  // namespace hvd::launch
