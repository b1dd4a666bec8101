// InputFeed: hvdrun's standard input on a node: what has come of it, on its way into the pipes of the ranks that are
// given it. It is held until the slowest of them has taken it, and only then may more come; a rank that has closed its
// end, or is over, is waited for no longer.
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
  // Called from the loop, and from drop().
  struct Sink {
    std::function<void(std::uint64_t bytes)> on_taken;  // so many are held no longer
    std::function<void()> on_over;                      // there was a reader, and now there is none
  };

  // Holds at most `window` bytes.
  InputFeed(EventLoop& loop, std::uint64_t window, Sink sink);
  ~InputFeed();
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  // One more reader, from what comes next on: the end of its pipe that is to be its standard input.
  Result<Fd> add_reader(int rank);
  // The rank has ended, or was never started.
  void drop(int rank);
  // An error when more comes than may. Without readers it goes nowhere.
  Result<void> feed(std::string_view bytes);
  // Nothing more comes: readers find its end behind what they have not taken yet.
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
  // Writes what the pipe takes. False when nobody reads it any more.
  [[nodiscard]] bool fill(Reader& reader) const;
  void close(Reader& reader);
  // Lets go of what all have taken, and of readers that are closed.
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
