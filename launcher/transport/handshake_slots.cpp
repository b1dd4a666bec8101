#include "launcher/transport/handshake_slots.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {

HandshakeSlots::HandshakeSlots(EventLoop& loop, std::size_t limit)
    : loop_(loop), limit_(std::max<std::size_t>(limit, 1)), self_(std::make_shared<HandshakeSlots*>(this)) {}

HandshakeSlots::Ticket HandshakeSlots::acquire(EventLoop::Task granted) {
  const Ticket ticket = next_++;
  waiting_.emplace(ticket, std::move(granted));
  grant_next();
  return ticket;
}

void HandshakeSlots::release(Ticket ticket) {
  waiting_.erase(ticket);
  if (held_.erase(ticket) != 0) {
    grant_next();
  }
}

void HandshakeSlots::grant_next() {
  while (held_.size() < limit_ && !waiting_.empty()) {
    auto first = waiting_.extract(waiting_.begin());
    const Ticket ticket = first.key();
    held_.insert(ticket);
    loop_.post([self = std::weak_ptr<HandshakeSlots*>(self_), ticket, granted = std::move(first.mapped())] {
      const auto alive = self.lock();
      if (alive && (*alive)->held_.contains(ticket)) {
        granted();
      }
    });
  }
}

}  // namespace hvd::launch
