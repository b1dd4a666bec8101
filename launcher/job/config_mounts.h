// A configuration file can say for all jobs where the mounts of job files are on the nodes:
//
//   mounts:
//     data: /srv/data
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

using ConfigMounts = std::vector<std::pair<std::string, std::string>>;  // name, directory

// Errors name file:line:column.
Result<ConfigMounts> parse_config_mounts(const std::string& text, const std::string& file);
Result<ConfigMounts> read_config_mounts(const std::string& file);

}  // namespace hvd::launch
