// Host files name one host a line, as "name slots=4" (Open MPI), "name:4" (MPICH) or "n[01-04]" (Slurm), with user@ and
// port as in a host list (host_list.h). In "name:2222 slots=4" the number is the port. '#' begins a comment, blank
// lines are skipped. Errors name file:line:column.
#pragma once

#include <string>
#include <string_view>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// `file` is only for messages.
Result<HostList> parse_hostfile(std::string_view text, const std::string& file);
Result<HostList> read_hostfile(const std::string& file);

}  // namespace hvd::launch
