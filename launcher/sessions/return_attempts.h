// ReturnAttempts says when to try again after a connection has broken, and when to give up. The network may be back at
// any moment, so the waits between attempts stay short; no attempt may hang, so each has its own time.
//
// It opens nothing: its owner makes each attempt, and tells how it ended.
//
// Thread: loop only.
#pragma once

#include <functional>

#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class ReturnAttempts {
 public:
  struct Sink {
    // Opens a new connection. It ends with fail(), also when its time is over, or with stop().
    std::function<void()> on_attempt;
    // The attempt has failed, and another one follows.
    std::function<void(const Error& why)> on_failed;
    // The time for attempts is over.
    std::function<void(const Error& why)> on_over;
  };

  ReturnAttempts(EventLoop& loop, Sink sink);
  ~ReturnAttempts();
  ReturnAttempts(const ReturnAttempts&) = delete;
  ReturnAttempts& operator=(const ReturnAttempts&) = delete;

  // Sets how long after a break attempts are made; zero: not at all.
  void allow(Duration limit) { limit_ = limit; }
  [[nodiscard]] Duration limit() const { return limit_; }
  // The connection has broken now. try_soon() follows.
  void begin(const Error& why);
  // Makes the first attempt from the loop: the caller may be inside a call of the stream that has broken.
  void try_soon() { try_in(Duration::zero()); }
  // The attempt that is under way has failed.
  void fail(const Error& why);
  // One has succeeded, or none is wanted any more.
  void stop();
  // Returns why the connection broke.
  [[nodiscard]] const Error& why() const { return why_; }
  // Returns how long ago the connection broke.
  [[nodiscard]] Duration away() const { return loop_.now() - since_; }

 private:
  void try_in(Duration delay);
  void attempt();

  EventLoop& loop_;
  const Sink sink_;
  Duration limit_{};
  Error why_{Code::kLostPeer, ""};
  TimePoint since_;
  int failed_ = 0;     // how many attempts have failed
  TimerId timer_ = 0;  // of the next attempt, or of the end of this one
};

}  // namespace hvd::launch
