#include "launcher/offers/equal_slots.h"

#include <utility>

namespace hvd::launch {

void EqualSlots::start(Handlers handlers) {
  Handlers own = handlers;
  own.on_hosts = [on_hosts = std::move(handlers.on_hosts), slots = slots_](const HostList& hosts) {
    HostList equal = hosts;
    for (HostSpec& host : equal) {
      host.slots = slots;
    }
    on_hosts(equal);
  };
  inner_->start(std::move(own));
}

}  // namespace hvd::launch
