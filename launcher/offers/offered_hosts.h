// These functions read what says which hosts a running job may use. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// OfferedHosts is what was read. `notes` say what in it was left out, one line each.
struct OfferedHosts {
  HostList hosts;
  std::vector<std::string> notes;
};

// Reads a host a line, as in a host file (job/hostfile.h). `slots`: of a host that says none; 0: each must say it. Of a
// host that is named twice the first line counts. No line at all is no host, and no error.
Result<OfferedHosts> parse_offered_hosts(std::string_view text, int slots, const std::string& where);

}  // namespace hvd::launch
