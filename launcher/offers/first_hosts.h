// These functions wait until there are hosts enough for a job to begin, or to begin again.
#pragma once

#include <functional>
#include <string>

#include "launcher/offers/host_offers.h"
#include "launcher/offers/host_source.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// Runs the loop until the hosts of `source` have `least` slots, for `patience` at most, and returns the hosts. `say`
// prints a line of what is wrong meanwhile. The first trouble is an error where no host was known before it: a command
// that does not work at all is not to be waited for.
Result<HostList> await_first_hosts(EventLoop& loop, HostSource& source, int least, Duration patience,
                                   const std::function<void(const std::string&)>& say);

// SeatsWanted says how many seats a job that starts again waits for, and for how long.
struct SeatsWanted {
  int best = 0;  // preferred for `best_patience`
  Duration best_patience{};
  int least = 0;  // needed, within `patience`
  Duration patience{};
};

// Runs the loop until `offers` has so many seats. The hosts come from `source`; null: they are those that there are,
// and one that is left alone may return. Something else may stop the loop; then what is there decides.
Result<void> await_seats(EventLoop& loop, HostSource* source, HostOffers& offers, const SeatsWanted& wanted,
                         const std::function<void(const std::string&)>& say);

}  // namespace hvd::launch
