// HandshakeSlots bounds how many connections are made at once; the others queue in order. sshd drops connections at
// random when too many are not logged in yet (MaxStartups 10:30:100), and a handshake costs processor time on our one
// thread. A connection that only waits for a silent host should hold no slot.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "runtime/io/event_loop.h"

namespace hvd::launch {

class HandshakeSlots {
 public:
  using Ticket = std::uint64_t;

  HandshakeSlots(EventLoop& loop, std::size_t limit);

  // `granted` runs from the loop, never from inside this call, unless the ticket is released before.
  Ticket acquire(EventLoop::Task granted);
  // Gives a slot back, or leaves the queue. Releasing twice is harmless.
  void release(Ticket ticket);

 private:
  void grant_next();

  // constant after construction
  EventLoop& loop_;
  const std::size_t limit_;
  // loop only
  Ticket next_ = 1;
  std::map<Ticket, EventLoop::Task> waiting_;
  std::set<Ticket> held_;
  std::shared_ptr<HandshakeSlots*> self_;  // shared: a posted grant asks whether we still exist
};

}  // namespace hvd::launch
