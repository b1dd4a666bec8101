// The file systems of a cluster's file: how its hosts mount what jobs name. Total over whatever stands there.
#pragma once

#include <string>
#include <vector>

#include "launcher/jobfile/document.h"
#include "launcher/jobfile/file_system.h"
#include "launcher/jobfile/schema.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// The keys of one.
const Schema& file_system_schema();

// Of a list that check() has passed. Errors are the user's (kInvalid) and begin with FILE:LINE:COLUMN.
Result<std::vector<FileSystem>> read_file_systems(const DocValue& list, const std::string& file);

// The keys and values of one, as they are written; never a password.
std::vector<std::pair<std::string, std::string>> file_system_keys(const FileSystem& system);

}  // namespace hvd::launch
