// ByteFilter transforms the bytes of a ByteChannel in both directions. With it, an encrypted session looks to its users
// like any other.
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

  // Appends the form of `bytes` that is sent.
  virtual Result<void> seal(std::string_view bytes, std::string& wire) = 0;
  // Takes bytes that were received.
  virtual void feed(Bytes wire) = 0;
  // Returns the next bytes that the other end wrote, valid until the next call; nullopt if more must arrive first. An
  // error ends the connection.
  virtual Result<std::optional<Bytes>> next() = 0;

 protected:
  ByteFilter() = default;
  ByteFilter(const ByteFilter&) = default;
  ByteFilter& operator=(const ByteFilter&) = default;
};

}  // namespace hvd
