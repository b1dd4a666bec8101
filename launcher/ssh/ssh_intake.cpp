#include "launcher/ssh/ssh_intake.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace hvd::launch {
namespace {

constexpr std::string_view kIdentification = "SSH-";

// One look at the socket sees at most so much.
constexpr std::size_t kLookBytes = 512;

ssize_t receive(int socket, char* into, std::size_t size, int flags) {
  const ssize_t got = ::recv(socket, into, size, flags | MSG_DONTWAIT);
  if (got >= 0) {
    return got;
  }
  return errno == EINTR ? -EAGAIN : -errno;
}

}  // namespace

ssize_t SshIntake::refuse(const std::string& why) {
  refusal_ = Error(Code::kProtocol, why);
  return -ECONNABORTED;
}

ssize_t SshIntake::take(char* into, std::size_t size, int flags) {
  if (is_cut_) {
    return 0;
  }
  if (refusal_) {
    return -ECONNABORTED;
  }
  if (!is_identified_) {
    if (const ssize_t found = read_identification(); found <= 0) {
      return found;
    }
  }
  if (handed_over_ < line_.size()) {
    const std::size_t taken = line_.copy(into, size, handed_over_);
    handed_over_ += taken;
    return static_cast<ssize_t>(taken);
  }
  if (is_limited_ && all_taken_ >= kMostBytes) {
    return refuse("it sent more than " + std::to_string(kMostBytes >> 20U) + " MiB before the login was over");
  }
  if (taken_ >= kCallBytes) {
    taken_ = 0;  // the socket stays readable, so that the loop comes again
    return -EAGAIN;
  }
  std::size_t wanted = std::min(size, kCallBytes - taken_);
  wanted = is_limited_ ? std::min(wanted, kMostBytes - all_taken_) : wanted;
  const ssize_t got = receive(socket_, into, wanted, flags);
  taken_ = got > 0 ? taken_ + static_cast<std::size_t>(got) : 0;
  all_taken_ += is_limited_ && got > 0 ? static_cast<std::size_t>(got) : 0;
  return got;
}

// Returns a positive number once the identification is there, otherwise the same as take(). A line is examined before
// it is taken off the socket, since everything after the identification is for libssh2.
ssize_t SshIntake::read_identification() {
  while (!is_identified_) {
    std::array<char, kLookBytes> buffer{};
    const ssize_t seen = receive(socket_, buffer.data(), buffer.size(), MSG_PEEK);
    if (seen <= 0) {
      return seen;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(seen));
    const std::size_t end = text.find('\n');
    const bool is_whole = end != std::string_view::npos;
    const ssize_t got = receive(socket_, buffer.data(), is_whole ? end + 1 : text.size(), 0);
    if (got <= 0) {
      return got;
    }
    if (const ssize_t refused = take_line(text.substr(0, static_cast<std::size_t>(got)), is_whole); refused < 0) {
      return refused;
    }
  }
  return 1;
}

// Takes more of a line, and perhaps its end. A negative result means that the server is refused.
ssize_t SshIntake::take_line(std::string_view more, bool is_whole) {
  text_bytes_ += more.size();
  line_.append(more.substr(0, kLongestIdentification + 1 - std::min(line_.size(), kLongestIdentification + 1)));
  const bool is_identification = std::string_view(line_).starts_with(kIdentification);
  if (is_identification && line_.size() > kLongestIdentification) {
    return refuse("its identification is longer than " + std::to_string(kLongestIdentification) + " bytes");
  }
  if (is_identification && is_whole) {
    is_identified_ = true;
    return 0;
  }
  if (is_whole) {
    line_.clear();
    ++text_lines_;
  }
  if (text_bytes_ >= kMostText || text_lines_ >= kMostLines) {
    return refuse("it sent " + std::to_string(text_lines_) + " lines (" + std::to_string(text_bytes_ >> 10U) +
                  " KiB) and no identification of an ssh server");
  }
  return 0;
}

}  // namespace hvd::launch
