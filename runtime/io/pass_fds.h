// Passes descriptors from process to process, over a connected unix stream socket (unix(7), SCM_RIGHTS).
//
// Thread: any. Neither call waits, because the message is small and arrives whole or not at all.
#pragma once

#include <array>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

// The most bytes that may go with the descriptors, so that they arrive as one piece.
inline constexpr std::size_t kMaxPassedBytes = 4096;

struct PassedFds {
  std::array<Fd, 2> fds;  // close-on-exec
  std::string bytes;
};

// Sends duplicates of `first` and `second`; the caller keeps its own.
Result<void> pass_fds(int socket, int first, int second, Bytes bytes);
// Receives what one pass_fds() sent. It is an error if the peer sends anything else, or is gone.
Result<PassedFds> receive_fds(int socket);

}  // namespace hvd
