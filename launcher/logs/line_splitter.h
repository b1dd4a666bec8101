// LineSplitter cuts a stream of bytes into whole lines, wherever the reads happened to cut it.
//
// A line ends with "\n", "\r\n", or a lone "\r" (a progress bar that redraws itself). Bytes are not decoded, so neither
// a character split over two reads nor an invalid one can be damaged. Value type.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace hvd::launch {

class LineSplitter {
 public:
  // Receives the line with its terminator. A piece of an overlong line, and a last line, may have none: all pieces
  // together are the stream.
  using Emit = std::function<void(std::string_view line)>;

  // A line longer than this is passed on in pieces, so that memory stays bounded.
  static constexpr std::size_t kMaxLineBytes = 1U << 20U;

  // None of the `uncut` texts lies across two pieces, so that each can be found in one.
  void feed(std::string_view bytes, const Emit& emit, std::span<const std::string> uncut = {});
  // The stream has ended: emits what is left as a line.
  void finish(const Emit& emit);
  // Returns the beginning of a line that is not complete yet.
  [[nodiscard]] std::string_view partial() const { return partial_; }

 private:
  std::string partial_;  // the beginning of a line that is not complete yet
};

}  // namespace hvd::launch
