// LinkSteps: how what goes one way over a data connection is cut into frames, so that a stream that is out of step is
// an error, and no wrong number: what somebody has put into it, or a size that two ranks do not agree on, would else
// move everything behind it by some bytes, for good.
//
// On the wire, of each operation that sends anything: mark | up to 1 MiB | mark | up to 1 MiB | ... | last mark.
//   mark: u32 magic | u32 operation | u32 frame | u32 bytes until the next mark, of the last one 0; little-endian.
// `operation` counts those of this connection in this direction, `frame` the marks; both go round. How many bytes an
// operation has is known at both ends beforehand, so that no receiver reads beyond a mark: data goes straight to where
// it belongs, and marks are parts of the same system calls.
//
// It notices what is out of step, not who is clever: a mark can be forged by whoever can write into the connection.
// Pure. Thread: one at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/bytes.h"

namespace hvd {

// Of one direction of a connection, for as long as that lasts.
struct LinkCount {
  std::uint32_t operations = 0;
  std::uint32_t marks = 0;
};

// Of a connection, as one of its ends sees it.
struct LinkCounts {
  LinkCount sent;
  LinkCount received;
};

class LinkSteps {
 public:
  static constexpr std::size_t kFrameBytes = 1U << 20U;
  static constexpr std::size_t kMarkBytes = 16;

  // One operation of `bytes` in all. `count` is the connection's, and outlives this.
  LinkSteps(LinkCount& count, std::uint64_t bytes, bool is_sender);

  [[nodiscard]] bool is_over() const { return is_over_; }
  // What is to be moved next: marks, and of the `data_count` parts at `data`, which are not empty and follow each
  // other, as much as belongs to this frame; how many parts were written to `parts`, which has room for two more than
  // `data`. 0: over; or, to a sender without data, nothing yet.
  std::size_t parts(const iovec* data, std::size_t data_count, iovec* parts);
  // So many bytes of parts() were moved: how many of them were data. nullopt: a mark has come that is not the one that
  // belongs here; see what_came().
  std::optional<std::size_t> note(std::size_t bytes);
  // "frame 3 of operation 7 with 100 bytes was to come, and ..."
  [[nodiscard]] std::string what_came() const;

 private:
  using Mark = std::array<std::uint8_t, kMarkBytes>;

  [[nodiscard]] Mark mark_with(std::uint32_t number, std::size_t bytes) const;
  void begin_frame();

  // constant after construction
  LinkCount* count_;
  bool is_sender_;
  std::uint32_t operation_;
  // one thread at a time
  std::uint64_t left_;          // of the operation's data, behind the frame that is under way
  std::size_t frame_left_ = 0;  // of its data
  std::size_t mark_moved_ = 0;  // of the mark before it
  Mark expected_{};             // that mark
  Mark mark_{};                 // what is sent, or has come, in its place
  Mark next_{};                 // likewise, of the mark behind the frame
  bool is_over_ = false;
};

}  // namespace hvd
