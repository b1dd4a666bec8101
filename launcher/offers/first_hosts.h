// await_first_hosts() waits until there are hosts enough for a job to begin.
#pragma once

#include <functional>
#include <string>

#include "launcher/offers/host_source.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// Runs the loop until the hosts of `source` have `least` slots, for `patience` at most, and returns the hosts. `say`
// prints a line of what is wrong meanwhile. The first trouble is an error where no host was known before it: a command
// that does not work at all is not to be waited for.
Result<HostList> await_first_hosts(EventLoop& loop, HostSource& source, int least, Duration patience,
                                   const std::function<void(const std::string&)>& say);

}  // namespace hvd::launch
