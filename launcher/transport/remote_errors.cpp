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
      log_.write(level_, host_ + " (standard error): " + partial_);
    }
    partial_.clear();
    if (c != '\n') {
      partial_ += c;
    }
  }
}

void RemoteErrors::forget() {
  if (!partial_.empty()) {
    feed("\n");
  }
  tail_.clear();
}

std::string RemoteErrors::last_lines(std::size_t count) const {
  std::string lines;
  std::string_view rest = tail_;
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = rest.find_last_not_of("\r\n ");
    if (end == std::string_view::npos) {
      break;
    }
    const auto before = rest.find_last_of("\r\n", end);
    const auto start = before == std::string_view::npos ? 0 : before + 1;
    lines = std::string(rest.substr(start, end + 1 - start)) + (lines.empty() ? "" : "; " + lines);
    rest = rest.substr(0, start);
  }
  return lines;
}

}  // namespace hvd::launch
