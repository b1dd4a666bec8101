// ByteFilter: what the bytes of a ByteChannel go through on their way, in both directions: a session that is encrypted
// is like any other to its users then.
//
// Thread: the channel's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd {

class ByteFilter {
 public:
  virtual ~ByteFilter() = default;

  // Appends what stands for `bytes` on the wire.
  virtual Result<void> seal(std::string_view bytes, std::string& wire) = 0;
  // Takes what has come over the wire.
  virtual void feed(Bytes wire) = 0;
  // The next bytes that the other end wrote, valid until the next call; nullopt when more must come. An error is the
  // connection's end.
  virtual Result<std::optional<Bytes>> next() = 0;

 protected:
  ByteFilter() = default;
  ByteFilter(const ByteFilter&) = default;
  ByteFilter& operator=(const ByteFilter&) = default;
};

}  // namespace hvd
