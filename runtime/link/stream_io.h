// Moves bytes in both directions at once over the data connections between leaders, for the collective algorithms.
//
// A wait looks a few times for data, then sleeps in poll(2), and asks the Interrupt at least every 100 ms. A connection
// that ends is kLostPeer and names the peer. One whose stream is out of step (link_steps.h) is kProtocol and names both
// ends, and so is an encrypted one that brings data which its other end has not sealed (sealed_stream.h). Thread: one
// at a time.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"
#include "runtime/link/link_steps.h"
#include "runtime/link/sealed_stream.h"

namespace hvd {

class ShmSegment;

// One end of a connection: its non-blocking socket, and who is at the other end, for messages ("node 2 (rank 5)").
struct StreamPeer {
  int fd = -1;
  std::string who;
  LinkCounts* counts = nullptr;    // the connection's, valid as long as it is; not owned
  std::string here;                // this end, for messages: "rank 0"
  SealedStream* sealed = nullptr;  // likewise; null: it is not encrypted
};

// Looks decides how often a wait looks before it sleeps. A look is a system call or two, and a sleep is two context
// switches. Looking is cheaper where waits are short, and wasted where they are long (a slow link, a peer that
// computes). So each long sleep halves the looks before the next one, and a short sleep restores them.
class Looks {
 public:
  static constexpr int kMost = 64;
  static constexpr Duration kShort = std::chrono::microseconds(50);  // about the time of kMost looks

  // `most` is the number of looks to begin with; 0: a wait always sleeps at once.
  explicit Looks(int most) : most_(most), now_(most) {}

  // True if another look is worth while after so many in vain.
  [[nodiscard]] bool has_more(int in_vain) const { return in_vain <= now_; }
  void note_sleep(Duration slept) { now_ = slept < kShort ? most_ : now_ / 2; }

 private:
  int most_;
  int now_;
};

// The looks of a leader whose node has this memory, or, if it is null, no other rank. If there are more ranks than
// cores, looking may keep another rank from running, or the program's other threads. Valid once all ranks have
// attached.
Looks looks_beside(const ShmSegment* node);

// Flow is the data that one operation sends and receives, in order. What it sends next may depend on what it has
// received.
class Flow {
 public:
  static constexpr std::size_t kMostParts = 16;  // that one system call moves

  virtual ~Flow() = default;
  // The bytes in all, from its beginning. The other end must receive, or send, the same number.
  [[nodiscard]] virtual std::uint64_t bytes_to_send() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes_to_receive() const = 0;
  // Writes to `parts` where the next bytes to send are, in order: at most kMostParts parts that are not empty. Returns
  // how many parts. 0: there is nothing to send before more has been received, or, once all has been received, nothing
  // at all.
  virtual std::size_t to_send(iovec* parts) = 0;
  virtual void note_sent(std::size_t bytes) = 0;
  // The same for the bytes to receive. 0: there is nothing more to receive.
  virtual std::size_t to_receive(iovec* parts) = 0;
  virtual void note_received(std::size_t bytes) = 0;

 protected:
  Flow() = default;
  Flow(const Flow&) = default;
  Flow& operator=(const Flow&) = default;
};

// Sends to one peer while it receives from another, which may be the same connection. Returns when the flow has nothing
// more to send or receive. A direction in which the flow has no bytes needs no peer.
Result<void> move(const StreamPeer& to, const StreamPeer& from, Flow& flow, Looks& looks, Interrupt& interrupt);

// Sends all of `out` to one peer while filling all of `in` from another; either may be empty.
Result<void> send_and_recv(const StreamPeer& to, Bytes out, const StreamPeer& from, MutableBytes in, Looks& looks,
                           Interrupt& interrupt);

}  // namespace hvd
