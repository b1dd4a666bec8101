// replace_file() writes a file whole or not at all: a reader sees what was there before, or all of the new text.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd {

// Writes `text` to a file beside `path`, and renames that. `mode`: its rights exactly; nullopt: those of any new file.
// On an error `path` is as it was. Blocks. Thread: any.
Result<void> replace_file(const std::string& path, std::string_view text, std::optional<mode_t> mode = std::nullopt);

}  // namespace hvd
