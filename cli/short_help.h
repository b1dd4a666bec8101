// The short help: the options of a user's first week, by group, on one screen. All options have their long texts in
// `--help-all`, which CLI11 makes from the same table. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/documents.h"

namespace hvd::cli {

// The options of a first week. Every name in it is one of `options`, or the build is wrong: a test compares them.
[[nodiscard]] std::string first_week_help(const std::vector<OptionInfo>& options);

// Those options of `options` that are in `group`, with their whole texts, for a command that has a group of its own.
[[nodiscard]] std::string group_help(const std::vector<OptionInfo>& options, const std::string& group);

}  // namespace hvd::cli
