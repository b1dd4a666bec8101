// The targets about job files; targets.h has the list of all.
#pragma once

#include <string_view>

namespace hvd::fuzz {

// Words and texts of job files that end in a shell's.
void job_arguments(std::string_view input);
void job_json(std::string_view input);
void job_yaml(std::string_view input);
// Below the service's "properties", so that what is found is not all about the file's first key.
void job_batchai(std::string_view input);

}  // namespace hvd::fuzz
