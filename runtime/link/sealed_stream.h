// SealedStream encrypts and decrypts the bytes of a data connection. Bytes to send are sealed in records of up to 64
// KiB (rendezvous/record.h), read directly from the sender's buffers. Received bytes are opened before they are handed
// on.
//
// A record never holds bytes of two operations, because its sender does not know the next one yet. But one read may
// bring bytes of two. So the stream, with the numbers of its records, lasts as long as its connection. Pure. Thread:
// one at a time.
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

  // Seals as much of the parts, which are not empty, as one record holds, and returns how many bytes that is. May be
  // called only when unsent() is empty.
  Result<std::size_t> seal(std::span<const iovec> parts);
  // The bytes of the record that were not sent yet.
  [[nodiscard]] Bytes unsent() const { return Bytes(wire_.get(), wire_end_).subspan(wire_begin_); }
  void note_sent(std::size_t bytes) { wire_begin_ += bytes; }

  // Returns the space for bytes from the wire; note_received() says how many were put there.
  [[nodiscard]] MutableBytes room();
  void note_received(std::size_t bytes) { opener_.note_fed(bytes); }
  // Opens the next record, when text() is empty; false when more of it must come first. After an error, which is kAuth
  // or kProtocol, the connection is of no more use.
  Result<bool> open_next();
  // The text that was opened and not taken yet.
  [[nodiscard]] Bytes text() const { return text_; }
  // Copies as much of the text as fits into the parts, and returns how many bytes that is.
  std::size_t take(std::span<const iovec> parts);

 private:
  RecordSealer sealer_;
  RecordOpener opener_;
  std::unique_ptr<std::uint8_t[]> wire_;  // one record; allocated for the first one
  std::size_t wire_begin_ = 0;
  std::size_t wire_end_ = 0;
  Bytes text_;
};

}  // namespace hvd
