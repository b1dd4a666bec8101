// InputSource reads from the loop a descriptor that somebody else made and may share with us (standard input). It reads
// no faster than the bytes are taken, and changes no setting that others would see.
//
// A terminal is read only while this process is in the terminal's foreground process group, or the terminal has none.
// The kernel stops a background process that reads (SIGTTIN), and a launcher in the background must go on. The caller
// blocks SIGTTIN, because the foreground group can change between the check and the read.
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "runtime/base/fd.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class InputSource {
 public:
  // The sink is called from the loop, never from inside a call.
  struct Sink {
    std::function<std::size_t()> allowance;  // how many bytes may come now; 0: nothing is read until resume()
    std::function<void(std::string_view bytes)> on_bytes;
    std::function<void()> on_end;  // the input has ended or cannot be read; called once
  };

  // Reads nothing before resume().
  InputSource(EventLoop& loop, Fd fd, Sink sink);
  ~InputSource();
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;

  // Looks again: `allowance` may have grown, or this process was continued.
  void resume();

 private:
  // True while the terminal belongs to a process group other than ours.
  [[nodiscard]] bool is_elsewhere() const;
  void look_later();
  // Waits until there is something to read. Input that is always readable, such as a file, is read in the next turn.
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
  Fd own_;  // the same file, opened again for us alone where that is possible: then reading never blocks
  WatchId watch_ = 0;
  TimerId timer_ = 0;
  bool is_posted_ = false;
  Scope scope_;
};

}  // namespace hvd::launch
