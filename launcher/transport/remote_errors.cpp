#include "launcher/transport/remote_errors.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kTailBytes = 4 * 1024;

}  // namespace

void RemoteErrors::feed(std::string_view text) {
  tail_.append(text);
  if (tail_.size() > kTailBytes) {
    tail_.erase(0, tail_.size() - kTailBytes);
  }
  for (const char c : text) {
    if (c != '\n' && partial_.size() < kTailBytes) {
      partial_ += c;
      continue;
    }
    if (!partial_.empty()) {
      log_.write(LogLevel::kInfo, host_ + " (agent): " + partial_);
    }
    partial_.clear();
    if (c != '\n') {
      partial_ += c;
    }
  }
}

std::string RemoteErrors::last_line() const {
  const auto end = tail_.find_last_not_of("\r\n ");
  if (end == std::string::npos) {
    return "";
  }
  const auto start = tail_.find_last_of("\r\n", end);
  return tail_.substr(start == std::string::npos ? 0 : start + 1,
                      end - (start == std::string::npos ? 0 : start + 1) + 1);
}

}  // namespace hvd::launch
