// These functions read the files that users write, and quote them in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

// Returns what the file holds, which may be nothing; of a longer file the first `most` bytes. `what` is "the host
// file", for example. An error (kInvalid) names it, the file and the reason.
Result<std::string> read_text_file(const std::string& file, const std::string& what,
                                   std::size_t most = std::size_t{64} << 20U);

// Returns the text for a message, without control characters and not longer than a line.
std::string shown_text(std::string_view text);

}  // namespace hvd::launch
