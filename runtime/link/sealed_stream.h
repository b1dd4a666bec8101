// SealedStream: what the bytes of an encrypted data connection go through. What is sent is sealed in records of up to
// 64 KiB (rendezvous/record.h) straight from where it lies; what comes is opened, and only then handed on.
//
// A record never holds bytes of two operations, since who sends it does not know the next one yet; but what one call
// reads may. So the stream lasts as long as its connection, as do the numbers of its records. Pure. Thread: one at a
// time.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/record.h"

namespace hvd {

class SealedStream {
 public:
  explicit SealedStream(const RecordKeys& keys) : sealer_(keys.sending), opener_(keys.receiving) {}

  // Of the parts, which are not empty, as much as one record holds; how much that is. Only when nothing is unsent().
  Result<std::size_t> seal(std::span<const iovec> parts);
  // What is to go over the wire.
  [[nodiscard]] Bytes unsent() const { return Bytes(wire_.get(), wire_end_).subspan(wire_begin_); }
  void note_sent(std::size_t bytes) { wire_begin_ += bytes; }

  // Where what comes over the wire is to be put, and how much has.
  [[nodiscard]] MutableBytes room();
  void note_received(std::size_t bytes) { opener_.note_fed(bytes); }
  // Opens the next record, when there is no text() left; false when more of it must come first. An error, which is
  // kAuth or kProtocol, is the connection's end.
  Result<bool> open_next();
  // What was opened and not taken.
  [[nodiscard]] Bytes text() const { return text_; }
  // Copies the text to the parts, as far as both go; how many bytes.
  std::size_t take(std::span<const iovec> parts);

 private:
  RecordSealer sealer_;
  RecordOpener opener_;
  std::unique_ptr<std::uint8_t[]> wire_;  // one record; made with the first
  std::size_t wire_begin_ = 0;
  std::size_t wire_end_ = 0;
  Bytes text_;
};

}  // namespace hvd
