// Console writes hvdrun's standard output and standard error without ever blocking the loop. Bytes that a slow reader
// has not taken yet are queued. The queue stays bounded because the caller stops feeding it at the high-water mark (see
// LogMux).
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/logs/live_rows.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

// ConsoleFds are the descriptors that hvdrun and the ranks print to; not owned. Tests pass their own.
struct ConsoleFds {
  int out = 1;
  int err = 2;
};

// ConsoleStream is one of the two descriptors.
class ConsoleStream {
 public:
  // `on_drained`: the queue has become empty. `on_failed`: the reader is gone (EPIPE) or the disk is full. It is called
  // once, and everything written later is dropped.
  struct Sink {
    std::function<void()> on_drained;
    std::function<void(const Error&)> on_failed;
  };

  // `fd` is not owned. `name` stands in errors: "standard output".
  ConsoleStream(EventLoop& loop, int fd, std::string name, Sink sink);
  ~ConsoleStream();
  ConsoleStream(const ConsoleStream&) = delete;
  ConsoleStream& operator=(const ConsoleStream&) = delete;

  void write(std::string_view bytes);
  // Hands the kernel what it takes now. Called at the end of a turn rather than per line.
  void flush();
  [[nodiscard]] bool is_terminal() const { return is_terminal_; }
  // True when a program reads the stream. Such a program may print on our terminal itself, as tee does.
  [[nodiscard]] bool has_program() const { return is_pipe_ || is_socket_; }
  // On a terminal, shows rows that stay below everything written later. They are drawn with the next flush.
  void show_below(std::vector<std::string> rows);
  [[nodiscard]] std::size_t pending() const { return queue_.size() - sent_; }
  // Returns the error that made the stream fail, if any.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  // True when the last bytes written did not end their line.
  [[nodiscard]] bool is_amid_line() const { return is_amid_line_; }

 private:
  // Returns true when more can be written at once.
  bool write_some();
  void watch_writable();
  void draw_below();
  void erase_below();
  [[nodiscard]] TerminalSize size() const;
  void fail(const Error& why);

  EventLoop& loop_;
  const int fd_;
  const std::string name_;
  const Sink sink_;
  Fd reopened_;  // an open file description of our own, so that O_NONBLOCK is not set for others who share it
  bool never_blocks_ = false;  // true for a regular file, or with reopened_
  bool is_pipe_ = false;
  bool is_socket_ = false;
  bool is_terminal_ = false;
  WatchId watch_ = 0;
  std::string queue_;
  std::size_t sent_ = 0;
  bool has_failed_ = false;
  bool is_amid_line_ = false;
  std::optional<Error> failure_;
  std::vector<std::string> below_;
  std::size_t drawn_ = 0;  // how many of these rows the terminal shows, once it has taken the queue
};

// True when both descriptors lead to the same file, so that the order between them matters.
bool is_same_file(int fd_a, int fd_b);

}  // namespace hvd::launch
