// Moving bytes both ways at once over the data connections between leaders, for the algorithms.
//
// Waits in poll(2) only, never spins; asks the Interrupt at least each 100 ms. A connection that ends is kLostPeer and
// names the peer. Thread: engine only.
#pragma once

#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"

namespace hvd {

// One end of a connection: its non-blocking socket, and who is at the other end, for messages ("node 2 (rank 5)").
struct StreamPeer {
  int fd = -1;
  std::string who;
};

// Sends all of `out` to one peer while filling all of `in` from another; both may be the same connection, and either
// may be empty. Returns when both are complete.
Result<void> send_and_recv(const StreamPeer& to, Bytes out, const StreamPeer& from, MutableBytes in,
                           Interrupt& interrupt);

}  // namespace hvd
