// These functions read the host list of -H: "a:4,user@b:2,n[01-04]:8,[fe80::1]:8,c". Every text gives either a list or
// an error with its column.
#pragma once

#include <string_view>

#include "launcher/job/host_spec.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// Reads one entry, [user@]host[[:port]:slots]; of two numbers the first is the SSH port. An IPv6 address stands in
// brackets. Brackets after the beginning of a name are Slurm's ranges, n[01-03,7] for n01, n02, n03 and n7, so one
// entry may give several hosts. Slots default to 1. `where` begins each error: "host list, column 5".
Result<HostList> parse_host_entry(std::string_view entry, const std::string& where);

// Reads a comma-separated list; empty entries are errors. Repeated hosts are merged.
Result<HostList> parse_host_list(std::string_view text);

// Gives `size` ranks to the hosts as their slots, as evenly as it goes, the first hosts one more. Hosts without a rank
// are removed.
void spread_slots(int size, HostList& hosts);

}  // namespace hvd::launch
