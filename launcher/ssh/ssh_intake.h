// SshIntake: what libssh2 gets of a socket's bytes. libssh2 reads on for as long as bytes are there: a server that
// sends text without end instead of its identification, or messages that mean nothing, would hold the loop for good. So
// this reads the identification itself and hands over that line alone, lets no call of libssh2 have more than a few
// bytes at once, and bounds what a server may send before the user is logged in.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

class SshIntake {
 public:
  // Of a connection: text before the identification, which RFC 4253 section 4.2 allows; the identification itself.
  static constexpr std::size_t kMostText = 64U << 10U;
  static constexpr int kMostLines = 1024;
  static constexpr std::size_t kLongestIdentification = 255;
  // Between two answers that there is nothing now: 4,096 of the smallest messages, which take a few milliseconds.
  static constexpr std::size_t kCallBytes = 128U << 10U;
  // Until lift_limit(): a key exchange and a login have some 10 KiB, and a greeting of 40 KiB at most.
  static constexpr std::size_t kMostBytes = 1U << 20U;

  // `socket` is not owned, and never blocks.
  explicit SshIntake(int socket) : socket_(socket) {}

  // As recv(2), but for the errno, which is returned with a minus before it.
  ssize_t take(char* into, std::size_t size, int flags);
  // The user is logged in.
  void lift_limit() { is_limited_ = false; }
  // Nothing more is handed over, whatever comes.
  void cut() { is_cut_ = true; }
  // Why the server is not heard any further.
  [[nodiscard]] const std::optional<Error>& refusal() const { return refusal_; }

 private:
  ssize_t read_identification();
  ssize_t take_line(std::string_view more, bool is_whole);
  ssize_t refuse(const std::string& why);

  const int socket_;
  bool is_identified_ = false;
  std::string line_;             // the identification, or the beginning of the line before it
  std::size_t handed_over_ = 0;  // of line_
  std::size_t text_bytes_ = 0;
  int text_lines_ = 0;
  std::size_t taken_ = 0;  // since the last answer that there is nothing now
  std::size_t all_taken_ = 0;
  bool is_limited_ = true;
  bool is_cut_ = false;
  std::optional<Error> refusal_;
};

}  // namespace hvd::launch
