// Descriptors from process to process, over a connected unix stream socket (unix(7), SCM_RIGHTS).
//
// Thread: any. Neither call waits: what is passed is small, and is there as one piece or not at all.
#pragma once

#include <array>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

// At most this many bytes go with the descriptors, so that they are one piece on the way.
inline constexpr std::size_t kMaxPassedBytes = 4096;

struct PassedFds {
  std::array<Fd, 2> fds;  // close-on-exec
  std::string bytes;
};

// The receiver gets duplicates of `first` and `second`; the caller keeps its own.
Result<void> pass_fds(int socket, int first, int second, Bytes bytes);
// What one pass_fds sent. A peer that sends anything else, or has gone, is an error.
Result<PassedFds> receive_fds(int socket);

}  // namespace hvd
