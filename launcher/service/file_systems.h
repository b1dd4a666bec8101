// These functions read the file systems in a cluster's file, which say how its hosts mount what jobs name. Any text
// gives either a list or an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/jobfile/document.h"
#include "launcher/jobfile/file_system.h"
#include "launcher/jobfile/schema.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// The keys that a file system may have.
const Schema& file_system_schema();

// Reads a list that check() has passed. Errors are the user's (kInvalid) and begin with FILE:LINE:COLUMN.
Result<std::vector<FileSystem>> read_file_systems(const DocValue& list, const std::string& file);

// Returns the keys and values of a file system as they are written in the file; never a password.
std::vector<std::pair<std::string, std::string>> file_system_keys(const FileSystem& system);

// True for text without line ends and other control characters.
bool is_plain_line(std::string_view text);

}  // namespace hvd::launch
