// The short help shows the options that a new user needs, by group, on one screen. `--help-all` shows the long texts of
// all options, which CLI11 makes from the same table. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/options/documents.h"

namespace hvd::cli {

// Returns the help of those options. Every name in it must be one of `options`: a test compares them.
[[nodiscard]] std::string first_week_help(const std::vector<OptionInfo>& options);

// Returns those of `options` that are in `group`, with their whole texts, for a command that has its own group.
[[nodiscard]] std::string group_help(const std::vector<OptionInfo>& options, const std::string& group);

}  // namespace hvd::cli
