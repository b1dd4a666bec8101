#include "runtime/base/result.h"

#include <errno.h>

#include <array>
#include <cstring>

namespace hvd {
namespace {

Code code_of(int sys_errno) {
  switch (sys_errno) {
    case ENOENT:
      return Code::kNotFound;
    case ETIMEDOUT:
      return Code::kTimeout;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Code::kUnreachable;
    case ECONNRESET:
    case EPIPE:
      return Code::kLostPeer;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EAGAIN:
      return Code::kResource;
    default:
      return Code::kSystem;
  }
}

}  // namespace

Error Error::from_errno(std::string what) {
  return from_errno(std::move(what), errno);
}

Error Error::from_errno(std::string what, int sys_errno) {
  std::array<char, 128> buffer{};
  // This is the GNU strerror_r: it is thread-safe and returns the text.
  Error error(code_of(sys_errno), std::move(what) + ": " + strerror_r(sys_errno, buffer.data(), buffer.size()));
  error.sys_errno_ = sys_errno;
  return error;
}

}  // namespace hvd
