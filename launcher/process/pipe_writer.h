// PipeWriter brings bytes into a pipe. It keeps what the pipe does not take yet, so that no writer has to wait.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <string_view>

#include "runtime/base/fd.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class PipeWriter {
 public:
  // The loop must outlive it. `on_taken`: the pipe took bytes, later than they were written; it may destroy this.
  PipeWriter(EventLoop& loop, std::function<void()> on_taken) : loop_(loop), on_taken_(std::move(on_taken)) {}
  ~PipeWriter() { drop(); }
  PipeWriter(const PipeWriter&) = delete;
  PipeWriter& operator=(const PipeWriter&) = delete;

  // `fd` does not block. Without one, written bytes are dropped.
  void open(Fd fd) { fd_ = std::move(fd); }
  void write(std::string bytes);
  // Sends without a copy: `bytes` must exist until they are taken.
  void push(std::string_view bytes);
  // Closes the pipe when it has taken what is queued.
  void finish();
  // Closes it now.
  void drop();

 private:
  struct Piece {
    std::string owned;
    std::string_view rest;
  };
  void wait_for_room();
  // Returns whether the pipe took any.
  bool flush();

  // constant after construction
  EventLoop& loop_;
  const std::function<void()> on_taken_;
  // loop only
  Fd fd_;
  WatchId watch_ = 0;
  std::list<Piece> pieces_;  // a list holds no memory while it is empty, and there are many of us
  bool wants_end_ = false;
};

}  // namespace hvd::launch
