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

// strerror_r is thread-safe, and there are two of that name: glibc's returns the text, which may lie outside the
// buffer, and POSIX's (musl) fills the buffer and returns a number. The result's type says which one this is.
[[maybe_unused]] const char* text_of(const char* returned, const char* /*buffer*/) {
  return returned;
}
[[maybe_unused]] const char* text_of(int /*returned*/, const char* buffer) {
  return buffer;
}

}  // namespace

Error Error::from_errno(std::string what) {
  return from_errno(std::move(what), errno);
}

Error Error::from_errno(std::string what, int sys_errno) {
  std::array<char, 128> buffer{};
  const auto returned = strerror_r(sys_errno, buffer.data(), buffer.size());
  Error error(code_of(sys_errno), std::move(what) + ": " + text_of(returned, buffer.data()));
  error.sys_errno_ = sys_errno;
  return error;
}

}  // namespace hvd
