// Reading the files that users write, and showing what stands there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

// What the file holds, which may be nothing; of a longer one the first `most` bytes. what: "the host file". An error
// (kInvalid) names it, the file and why.
Result<std::string> read_text_file(const std::string& file, const std::string& what,
                                   std::size_t most = std::size_t{64} << 20U);

// For messages: what was found, without control characters and not longer than a line.
std::string shown_text(std::string_view text);

}  // namespace hvd::launch
