// InputSource: a descriptor that somebody else has made, and may share with us (standard input): read from the loop, no
// faster than what is read is taken, and without changing it for the others.
//
// A terminal is read only while this process is of its foreground process group, or it has none: whoever reads it from
// behind is stopped (SIGTTIN), and a launcher that was put into the background is not to be. SIGTTIN has to be blocked,
// since that can change between a look and the reading.
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

class InputSource {
 public:
  // Called from the loop, never from inside a call.
  struct Sink {
    std::function<std::size_t()> allowance;  // how many bytes may come now; 0: nothing is read until resume()
    std::function<void(std::string_view bytes)> on_bytes;
    std::function<void()> on_end;  // its end has come, or it cannot be read; called once
  };

  // Reads nothing before resume().
  InputSource(EventLoop& loop, Fd fd, Sink sink);
  ~InputSource();
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;

  // More may come than before, or this process was continued.
  void resume();

 private:
  // Of another process group than ours is the terminal now.
  [[nodiscard]] bool is_elsewhere() const;
  void look_later();
  // Waits until there is something; what can always be read, as a file, is read in the next turn.
  void wait();
  void pause();
  void read();
  [[nodiscard]] long read_some(char* into, std::size_t size) const;
  void finish();

  // constant after construction
  EventLoop& loop_;
  const Sink sink_;
  const bool is_terminal_;
  const bool is_socket_;
  // loop only
  Fd fd_;
  Fd own_;  // the same, opened anew for us alone, where that can be: then reading never blocks
  WatchId watch_ = 0;
  TimerId timer_ = 0;
  bool is_posted_ = false;
  std::shared_ptr<bool> alive_;
};

}  // namespace hvd::launch
