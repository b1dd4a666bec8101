// SshIntake limits what libssh2 gets of a socket's bytes. libssh2 reads for as long as bytes arrive: a server that
// sends endless text instead of its identification, or meaningless messages, would hold the loop for ever. So SshIntake
// reads the identification itself and hands over only that line. It gives each call of libssh2 a few bytes, and bounds
// what a server may send before the user is logged in.
//
// Thread: loop only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

class SshIntake {
 public:
  // This limits the text before the identification, which RFC 4253 section 4.2 allows, and the identification itself.
  static constexpr std::size_t kMostText = 64U << 10U;
  static constexpr int kMostLines = 1024;
  static constexpr std::size_t kLongestIdentification = 255;
  // libssh2 gets at most this before it is told that nothing is there: 4,096 smallest messages take a few milliseconds.
  static constexpr std::size_t kCallBytes = 128U << 10U;
  // This holds until lift_limit(): a key exchange and a login have some 10 KiB, and a greeting of 40 KiB at most.
  static constexpr std::size_t kMostBytes = 1U << 20U;

  // `socket` is not owned, and never blocks.
  explicit SshIntake(int socket) : socket_(socket) {}

  // Works as recv(2), but returns a negative errno.
  ssize_t take(char* into, std::size_t size, int flags);
  // Call it when the user is logged in.
  void lift_limit() { is_limited_ = false; }
  // Hands nothing more over, whatever comes.
  void cut() { is_cut_ = true; }
  // Says why the server is no longer read.
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
