// TcpDial: a non-blocking connect that tries one address after the other. The caller holds the deadline.
//
// Thread: loop only. Destroying it gives up and reports nothing.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/base/socket.h"

namespace hvd::launch {

class TcpDial {
 public:
  using Done = std::function<void(Result<Fd>)>;

  // `done` is called once, from the loop and never from inside start(); it may destroy this object. Its error is that
  // of the last address, with the system's errno; current() tells which that was.
  TcpDial(EventLoop& loop, std::vector<SocketAddress> addresses, Done done);
  ~TcpDial();
  TcpDial(const TcpDial&) = delete;
  TcpDial& operator=(const TcpDial&) = delete;

  void start();
  // The address that is being tried, or was tried last.
  [[nodiscard]] const SocketAddress& current() const { return addresses_[at_]; }

 private:
  void try_next();
  Result<void> begin();
  void on_writable();
  void finish(Result<Fd> result);

  // constant after construction
  EventLoop& loop_;
  const std::vector<SocketAddress> addresses_;
  // loop only
  Done done_;
  std::size_t at_ = 0;
  Fd fd_;
  WatchId watch_ = 0;
  TimerId starter_ = 0;
};

}  // namespace hvd::launch
