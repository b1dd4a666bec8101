// Json is how this room reads and writes JSON: an object keeps its keys in the order in which they came, so that what
// is written begins with what a person looks for first.
#pragma once

#include <nlohmann/json.hpp>

namespace hvd::launch {

using Json = nlohmann::ordered_json;

}  // namespace hvd::launch
