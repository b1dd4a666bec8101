// AcceptWatch: takes the connections that come to a listening socket, in an event loop. A socket whose connections
// cannot be taken, since this process or the machine is out of descriptors, stays readable: the loop would spin, and
// say so each time. So this pauses then, and says it once.
//
// Thread: loop only. A handler may destroy it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

class AcceptWatch {
 public:
  struct Handlers {
    std::function<void(Fd)> on_connection;  // never blocks, close-on-exec
    // Connections cannot be taken for now. Told at most once in kToldFor.
    std::function<void(const Error&)> on_trouble;
  };

  // Between two attempts, and between two lines about it.
  static constexpr Duration kRetry = std::chrono::milliseconds(100);
  static constexpr Duration kToldFor = std::chrono::minutes(10);

  // `listener` is not owned and never blocks.
  static Result<std::unique_ptr<AcceptWatch>> create(EventLoop& loop, int listener, Handlers handlers);
  ~AcceptWatch();
  AcceptWatch(const AcceptWatch&) = delete;
  AcceptWatch& operator=(const AcceptWatch&) = delete;

  // Takes those who wait already, without waiting for the loop's turn. Not from inside a handler.
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
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once destroyed: a handler may do that
};

}  // namespace hvd
