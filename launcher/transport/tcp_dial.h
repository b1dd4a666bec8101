// TcpDial is a non-blocking connect to one host by whichever of its addresses answers first. The caller holds the
// deadline.
//
// An address that swallows packets (a dead AAAA beside a live A, a host with one cable pulled) says nothing for
// minutes; so the next one is tried 250 ms after the one before, or at once when that has failed, and the first that
// connects wins. Order and delay: RFC 8305, sections 4, 5 and 8.
//
// Thread: loop only. Destroying it gives up and reports nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/socket.h"

namespace hvd::launch {

// Returns the order in which a host's addresses are tried: each once, IPv6 and IPv4 in turn, otherwise as they come.
std::vector<SocketAddress> dialling_order(const std::vector<SocketAddress>& addresses);

class TcpDial {
 public:
  using Done = std::function<void(Result<Fd>)>;

  // So much time passes between the starts of two attempts.
  static constexpr Duration kPace = std::chrono::milliseconds(250);

  // `done` is called once, from the loop and never from inside start(); it may destroy this object. Its error is that
  // of the address that failed last, with the system's errno; current() tells which that was.
  TcpDial(EventLoop& loop, const std::vector<SocketAddress>& addresses, Done done);
  ~TcpDial();
  TcpDial(const TcpDial&) = delete;
  TcpDial& operator=(const TcpDial&) = delete;

  void start();
  // Returns the address that connected; before that, and after an error, the one that was begun or failed last.
  [[nodiscard]] const SocketAddress& current() const { return attempts_[current_].address; }
  // Returns what each address said so far: "fd00::1 gave no answer, 10.0.0.1 refused".
  [[nodiscard]] std::string words() const;

 private:
  enum class Stage : std::uint8_t { kToCome, kTrying, kFailed };
  struct Attempt {
    SocketAddress address;
    Stage stage = Stage::kToCome;
    int failure = 0;  // errno
    Fd fd;
    WatchId watch = 0;
  };

  void begin_next();
  // Returns 0 or an errno.
  int begin(std::size_t index);
  void on_writable(std::size_t index);
  void fail(std::size_t index, int failure);
  void hang_up();
  void finish(Result<Fd> result);

  // constant after construction
  EventLoop& loop_;
  // loop only
  Done done_;
  std::vector<Attempt> attempts_;
  std::size_t next_ = 0;  // of those to come, the first
  std::size_t current_ = 0;
  TimerId pace_ = 0;
};

}  // namespace hvd::launch
