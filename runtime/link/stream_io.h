// Moving bytes both ways at once over the data connections between leaders, for the algorithms.
//
// A wait looks a few times for what is about to come, then sleeps in poll(2); asks the Interrupt at least each 100 ms.
// A connection that ends is kLostPeer and names the peer; one whose stream is out of step (link_steps.h) is kProtocol
// and names both ends. One that is encrypted ends likewise with what its other end has not sealed (sealed_stream.h).
// Thread: one at a time.
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

// One end of a connection: its non-blocking socket, and who is at the other end, for messages ("node 2 (rank 5)").
struct StreamPeer {
  int fd = -1;
  std::string who;
  LinkCounts* counts = nullptr;    // of the connection, which has them as long as it lasts; not owned
  std::string here;                // who this is: "rank 0"
  SealedStream* sealed = nullptr;  // of the connection, likewise; null: it is not encrypted
};

// How often a wait looks before it sleeps. A look is a system call or two, a sleep is two changes of threads: where
// waits are short, looking is the shorter way, and where they are long (a slow link, a peer that computes) it is lost.
// So each long sleep halves the looks before the next one, and a short one brings them back.
class Looks {
 public:
  static constexpr int kMost = 64;
  static constexpr Duration kShort = std::chrono::microseconds(50);  // about what so many looks take

  // 0: sleeps at once, always.
  explicit Looks(int most) : most_(most), now_(most) {}

  // After so many in vain: whether to look once more.
  [[nodiscard]] bool has_more(int in_vain) const { return in_vain <= now_; }
  void note_sleep(Duration slept) { now_ = slept < kShort ? most_ : now_ / 2; }

 private:
  int most_;
  int now_;
};

// What goes over connections, in order, where it may depend on what comes whether there is more to send.
class Flow {
 public:
  static constexpr std::size_t kMostParts = 16;  // of what moves with one system call

  virtual ~Flow() = default;
  // In all, from its beginning; the same as what the other end has to receive, or to send.
  [[nodiscard]] virtual std::uint64_t bytes_to_send() const = 0;
  [[nodiscard]] virtual std::uint64_t bytes_to_receive() const = 0;
  // Where the next bytes are, in order, in at most kMostParts parts that are not empty; how many parts. 0: nothing
  // before more has come; with nothing more to receive, nothing any more.
  virtual std::size_t to_send(iovec* parts) = 0;
  virtual void note_sent(std::size_t bytes) = 0;
  // Where the next bytes go, likewise. 0: there is nothing more to receive.
  virtual std::size_t to_receive(iovec* parts) = 0;
  virtual void note_received(std::size_t bytes) = 0;

 protected:
  Flow() = default;
  Flow(const Flow&) = default;
  Flow& operator=(const Flow&) = default;
};

// Sends to one peer while it receives from another, which may be the same connection, until the flow has nothing more
// to receive and nothing to send. A side that the flow never has anything for needs no peer.
Result<void> move(const StreamPeer& to, const StreamPeer& from, Flow& flow, Looks& looks, Interrupt& interrupt);

// Sends all of `out` to one peer while filling all of `in` from another; either may be empty.
Result<void> send_and_recv(const StreamPeer& to, Bytes out, const StreamPeer& from, MutableBytes in, Looks& looks,
                           Interrupt& interrupt);

}  // namespace hvd
