// AcceptWatch accepts the connections of a listening socket, in an event loop. If this process or the machine is out of
// descriptors, connections cannot be accepted and the socket stays readable: a plain loop would spin and report the
// error each time. So this class pauses then, and reports the error once.
//
// Thread: loop only. A handler may destroy it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd {

class AcceptWatch {
 public:
  struct Handlers {
    std::function<void(Fd)> on_connection;  // non-blocking and close-on-exec
    // Connections cannot be accepted for now. Called at most once in kToldFor.
    std::function<void(const Error&)> on_trouble;
  };

  // The time between two attempts, and between two reports.
  static constexpr Duration kRetry = std::chrono::milliseconds(100);
  static constexpr Duration kToldFor = std::chrono::minutes(10);

  // `listener` is not owned and must be non-blocking.
  static Result<std::unique_ptr<AcceptWatch>> create(EventLoop& loop, int listener, Handlers handlers);
  ~AcceptWatch();
  AcceptWatch(const AcceptWatch&) = delete;
  AcceptWatch& operator=(const AcceptWatch&) = delete;

  // Accepts connections that wait already, without waiting for the loop's turn. Not to be called from inside a handler.
  void accept_now();

 private:
  AcceptWatch(EventLoop& loop, int listener, Handlers handlers);
  void pause(const Error& why);

  // constant after construction
  EventLoop& loop_;
  const int listener_;
  const Handlers handlers_;
  // loop only
  WatchId watch_ = 0;
  TimerId retry_ = 0;
  std::optional<TimePoint> told_at_;
  Scope scope_;
};

}  // namespace hvd
