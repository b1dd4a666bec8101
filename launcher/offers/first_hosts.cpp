#include "launcher/offers/first_hosts.h"

#include <algorithm>
#include <optional>

#include "runtime/base/duration_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {

Result<HostList> await_first_hosts(EventLoop& loop, HostSource& source, int least, Duration patience,
                                   const std::function<void(const std::string&)>& say) {
  std::optional<HostList> known;
  std::optional<Error> failed;
  long long slots = 0;
  HostSource::Handlers handlers;
  handlers.on_hosts = [&](const HostList& hosts) {
    slots = 0;
    for (const HostSpec& host : hosts) {
      slots += host.slots;
    }
    known = hosts;
    if (slots >= least) {
      return loop.stop();
    }
    say("the hosts have " + counted(static_cast<std::size_t>(slots), "slot") + " of the " + std::to_string(least) +
        " that the job needs to begin; waiting for more");
  };
  handlers.on_trouble = [&](const std::string& why) {
    if (known) {
      return say(why);
    }
    failed = Error(Code::kInvalid, why);
    loop.stop();
  };
  source.start(std::move(handlers));
  const TimerId timer = loop.after(patience, [&] {
    failed = Error(Code::kTimeout, "the hosts had " + counted(static_cast<std::size_t>(slots), "slot") + " of the " +
                                       std::to_string(least) + " that the job needs to begin (-np), for " +
                                       duration_text(patience) + " (--elastic-timeout)");
    loop.stop();
  });
  const auto ran = loop.run();
  loop.cancel(timer);
  source.stop();
  HVD_TRY(ran);
  if (failed) {
    return *failed;
  }
  return *std::move(known);
}

}  // namespace hvd::launch
