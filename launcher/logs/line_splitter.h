// LineSplitter: a stream of bytes, cut into whole lines, however the reads happened to cut it.
//
// A line ends with "\n", "\r\n", or a lone "\r" (a progress bar drawing itself anew). Bytes pass as they are: no
// decoding, so neither a character split over two reads nor an invalid one can be harmed. Value type.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace hvd::launch {

class LineSplitter {
 public:
  // Gets the line with its terminator. A piece of a line that is too long, and a last line, may have none: all pieces
  // together are the stream.
  using Emit = std::function<void(std::string_view line)>;

  // A line longer than this is passed on in pieces, so that memory stays bounded.
  static constexpr std::size_t kMaxLineBytes = 1U << 20U;

  void feed(std::string_view bytes, const Emit& emit);
  // The stream has ended: what is left is a line.
  void finish(const Emit& emit);
  // What has come of a line that is not whole yet.
  [[nodiscard]] std::string_view partial() const { return partial_; }

 private:
  std::string partial_;  // the beginning of a line that is not whole yet
};

}  // namespace hvd::launch
