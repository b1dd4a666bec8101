// This table defines every option of hvdrun: its names, its help, and where in Flags its value goes. The help text, the
// manual page and the shells' completions are all made from it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/options/documents.h"
#include "cli/options/flags.h"

namespace CLI {
class App;
}

namespace hvd::cli {

// `flags` outlives the parsing.
void add_options(CLI::App& app, Flags& flags);
void add_bench_options(CLI::App& app, Flags& flags);
void add_manifest_options(CLI::App& app, Flags& flags);
void add_plan_options(CLI::App& app, Flags& flags);
void add_submit_options(CLI::App& app, Flags& flags);
// Returns the options as documents show them, in the order in which they were added.
[[nodiscard]] std::vector<OptionInfo> describe_options(const CLI::App& app);
// Returns command lines and what they do.
[[nodiscard]] const std::vector<std::pair<std::string, std::string>>& example_commands();
// Returns the text above the options in the help.
[[nodiscard]] std::string description();

}  // namespace hvd::cli
