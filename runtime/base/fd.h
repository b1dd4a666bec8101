// Fd owns one file descriptor, and only it closes descriptors.
//
// Value type, move-only. Every function here makes descriptors close-on-exec, so that none leaks into a rank. A leaked
// end of a pipe keeps its reader waiting for an end of file that never comes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/result.h"

namespace hvd {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset();

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read_end;
  Fd write_end;
};

// Makes a close-on-exec pipe, blocking at both ends.
Result<Pipe> make_pipe();
// Makes a close-on-exec pair of connected stream sockets (AF_UNIX).
Result<std::pair<Fd, Fd>> make_socket_pair();
Result<void> set_nonblocking(int fd, bool nonblocking = true);
// Writes all of it. A descriptor that another program made non-blocking, as a shared terminal may be, is waited for:
// the call blocks as long as the reader takes nothing, as a write to a blocking descriptor does. Returns false with
// errno set by the write that failed.
[[nodiscard]] bool write_all(int fd, std::string_view bytes);
// Returns all that a file holds; "" if it cannot be read.
std::string text_of_file(const std::string& path);
// Returns its first line, without the end of the line.
std::string first_line_of_file(const std::string& path);
// Makes a file longer, or shorter, as ftruncate() does. Beyond ulimit -f it fails with EFBIG and without SIGXFSZ, by
// which a program would die. Returns false with errno set.
[[nodiscard]] bool resize_file(int fd, std::size_t bytes);
// Makes a second descriptor for the same open file, close-on-exec.
Result<Fd> duplicate(int fd);

}  // namespace hvd
