// PipeReader takes bytes out of a pipe, as far as its owner allows. It is the other half of PipeWriter. One that is not
// allowed to read leaves the loop alone, though the pipe is full or at its end, and drops nothing.
//
// Thread: loop only. Any handler may destroy it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/scope.h"

namespace hvd::launch {

class PipeReader {
 public:
  // Only on_bytes must be set.
  struct Handlers {
    std::function<std::size_t()> allowance;  // how many bytes may come now; 0: nothing is read until resume()
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // the pipe is closed, by either side; not after drop()
  };

  // The loop must outlive it.
  PipeReader(EventLoop& loop, Handlers handlers)
      : loop_(loop), handlers_(std::make_shared<const Handlers>(std::move(handlers))), scope_(loop) {}
  ~PipeReader() { drop(); }
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  // `fd` does not block.
  Result<void> open(Fd fd);
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }
  // False as well while it waits for resume().
  [[nodiscard]] bool is_reading() const { return fd_.is_open() && !is_paused_; }
  // Reads on, because the owner allows more than before.
  void resume();
  // Reads now what stands in the pipe, which is all that a process has written that ended.
  void read_rest();
  // Closes it now, and tells its end.
  void close();
  // Closes it now, and tells nothing.
  void drop();

 private:
  Result<void> watch();
  void read(std::size_t budget);

  // constant after construction
  EventLoop& loop_;
  const std::shared_ptr<const Handlers> handlers_;  // shared: one that runs may destroy us
  // loop only
  Fd fd_;
  WatchId watch_ = 0;
  bool is_paused_ = false;
  Scope scope_;
};

}  // namespace hvd::launch
