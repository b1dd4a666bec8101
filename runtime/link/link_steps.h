// LinkSteps cuts the data of one operation, in one direction of a data connection, into frames with a mark before each.
// A stream that is out of step becomes an error in this way. Otherwise bytes that something else has written into the
// connection, or a size on which two ranks disagree, would shift all later data and give wrong numbers.
//
// For each operation that sends anything, the wire carries: mark | up to 1 MiB | mark | up to 1 MiB | ... | last mark.
//   mark: u32 magic | u32 operation | u32 frame | u32 bytes until the next mark (0 in the last one); little-endian.
// `operation` counts the operations of this connection in this direction, and `frame` counts the marks. Both wrap
// around. Both ends know beforehand how many bytes an operation has, so a receiver never reads beyond a mark. The data
// goes straight to its destination, and marks are moved by the same system calls.
//
// This detects mistakes, not attacks: anybody who can write into the connection can forge a mark. Pure. Thread: one at
// a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/bytes.h"

namespace hvd {

// Counts one direction of a connection, for as long as the connection lasts.
struct LinkCount {
  std::uint32_t operations = 0;
  std::uint32_t marks = 0;
};

// Counts both directions of a connection, as one of its ends sees them.
struct LinkCounts {
  LinkCount sent;
  LinkCount received;
};

class LinkSteps {
 public:
  static constexpr std::size_t kFrameBytes = 1U << 20U;
  static constexpr std::size_t kMarkBytes = 16;

  // The steps of one operation of `bytes` in all. `count` belongs to the connection, and outlives this.
  LinkSteps(LinkCount& count, std::uint64_t bytes, bool is_sender);

  [[nodiscard]] bool is_over() const { return is_over_; }
  // Writes to `parts` what is to be moved next: marks, and as much of the data as belongs to this frame. The data is
  // `data_count` parts at `data`, which are not empty and follow each other. Returns how many parts were written;
  // `parts` has room for two more than `data`. 0 means that the operation is over, or that a sender has no data yet.
  std::size_t parts(const iovec* data, std::size_t data_count, iovec* parts);
  // Notes that so many bytes of parts() were moved, and returns how many of them were data. nullopt means that a wrong
  // mark has come; see what_came().
  std::optional<std::size_t> note(std::size_t bytes);
  // Describes the wrong mark: "frame 3 of operation 7 with 100 bytes was to come, and ..."
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
  std::uint64_t left_;          // bytes of the operation's data after the current frame
  std::size_t frame_left_ = 0;  // bytes of the current frame's data that were not moved yet
  std::size_t mark_moved_ = 0;  // bytes of the mark before that frame that were moved
  Mark expected_{};             // the mark that belongs before that frame
  Mark mark_{};                 // the mark that is being sent, or has come
  Mark next_{};                 // the same for the mark after the frame
  bool is_over_ = false;
};

}  // namespace hvd
