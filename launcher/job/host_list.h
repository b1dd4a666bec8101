// "a:4,user@b:2,n[01-04]:8,[fe80::1]:8,c": the host list of -H. Total: any text gives a list or an error with its
// column.
#pragma once

#include <string_view>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// One entry, [user@]host[[:port]:slots]: of two numbers the first is the SSH port. An IPv6 address stands in brackets;
// brackets after the beginning of a name are Slurm's ranges, n[01-03,7] for n01, n02, n03 and n7, so that one entry may
// give several hosts. Slots default to 1. `where` begins each error: "host list, column 5".
Result<HostList> parse_host_entry(std::string_view entry, const std::string& where);

// A comma-separated list; empty entries are errors. Repeated hosts are merged.
Result<HostList> parse_host_list(std::string_view text);

}  // namespace hvd::launch
