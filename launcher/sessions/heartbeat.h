// Heartbeat notices when a node has fallen silent, and lets the node notice when we have. A connection that breaks in
// silence, as when a host loses its power, brings no error: only the missing signs of life tell.
//
// It neither sends nor receives anything: its owner does, and calls hear() for whatever comes.
//
// Thread: loop only.
#pragma once

#include <functional>

#include "runtime/io/event_loop.h"

namespace hvd::launch {

class Heartbeat {
 public:
  struct Sink {
    // Sends a sign of life.
    std::function<void()> beat;
    // Nothing has come for this long, which is too long. It beats no more until go_on().
    std::function<void(Duration silence)> on_silent;
  };

  Heartbeat(EventLoop& loop, Sink sink);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Beats from now on, and takes silence for kMissedHeartbeats intervals as too long. Before that nothing is too long.
  void begin(Duration interval);
  // Stops while there is no connection.
  void pause();
  void go_on();
  // A sign of life has come.
  void hear() { last_heard_ = loop_.now(); }
  // It was heard within the time in which it is to be heard. Always true before begin().
  [[nodiscard]] bool is_in_touch() const;
  // Returns the time since the last sign of life.
  [[nodiscard]] Duration silence() const { return loop_.now() - last_heard_; }
  // Returns how long silence may last.
  [[nodiscard]] Duration patience() const;

 private:
  void beat();

  EventLoop& loop_;
  const Sink sink_;
  Duration interval_{};  // zero: not begun
  TimePoint last_heard_;
  TimePoint due_;  // when the timer is to fire
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
