// "a:4,user@b:2,[fe80::1]:8,c": the host list of -H. Total: any text gives a list or an error with its column.
#pragma once

#include <string_view>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// One entry, [user@]host[:slots]. An IPv6 address stands in brackets. Slots default to 1. `where` begins each error:
// "host list, column 5".
Result<HostSpec> parse_host(std::string_view entry, const std::string& where);

// A comma-separated list; empty entries are errors. Repeated hosts are merged.
Result<HostList> parse_host_list(std::string_view text);

}  // namespace hvd::launch
