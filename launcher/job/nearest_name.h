// nearest_name() finds what a misspelt word was to be: an option, a key, a command, a setting. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

// Returns the name that a misspelt one probably means; empty: none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace hvd::launch
