// InputFeed brings hvdrun's standard input on a node into the pipes of the ranks that read it. Bytes are held until the
// slowest rank has taken them, and only then may more come. A rank that has closed its end, or has ended, is waited for
// no longer.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class InputFeed {
 public:
  // Sink is called from the loop, and from drop().
  struct Sink {
    std::function<void(std::uint64_t bytes)> on_taken;  // so many are held no longer
    std::function<void()> on_over;                      // there was a reader, and now there is none
  };

  // Holds at most `window` bytes.
  InputFeed(EventLoop& loop, std::uint64_t window, Sink sink);
  ~InputFeed();
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  // Adds a reader, from the next byte on. Returns the end of its pipe that becomes the rank's standard input.
  Result<Fd> add_reader(int rank);
  // The rank has ended, or was never started.
  void drop(int rank);
  // Fails when more comes than may. Without readers the bytes are dropped.
  Result<void> feed(std::string_view bytes);
  // Nothing more comes: readers find the end after the bytes that they have not taken yet.
  void end();
  [[nodiscard]] std::size_t bytes() const { return held_.size(); }

 private:
  struct Reader {
    int rank = 0;
    Fd pipe;
    WatchId watch = 0;
    std::uint64_t taken = 0;  // where it is in the whole input
  };

  [[nodiscard]] std::uint64_t came() const { return gone_ + held_.size(); }
  void serve_all();
  void serve(Reader& reader);
  // Writes what the pipe takes. Returns false when nobody reads it any more.
  [[nodiscard]] bool fill(Reader& reader) const;
  void close(Reader& reader);
  // Drops the bytes that all have taken, and the readers that are closed.
  void settle();

  // constant after construction
  EventLoop& loop_;
  const std::uint64_t window_;
  const Sink sink_;
  // loop only
  std::vector<Reader> readers_;
  std::string held_;
  std::uint64_t gone_ = 0;  // bytes of the whole input before held_
  bool has_ended_ = false;
};

}  // namespace hvd::launch
