#include "launcher/logs/line_splitter.h"

#include <algorithm>
#include <cstring>

#include "launcher/job/hidden_texts.h"

namespace hvd::launch {
namespace {

// Returns the end of the first line in `bytes` (one past its terminator), or npos. A "\r" at the very end is undecided:
// the next read may begin with its "\n".
std::size_t line_end(std::string_view bytes) {
  const auto* newline = static_cast<const char*>(std::memchr(bytes.data(), '\n', bytes.size()));
  const std::size_t before = newline == nullptr ? bytes.size() : static_cast<std::size_t>(newline - bytes.data());
  const auto* ret = static_cast<const char*>(std::memchr(bytes.data(), '\r', before));
  if (ret != nullptr) {
    const std::size_t at = static_cast<std::size_t>(ret - bytes.data());
    if (at + 1 == bytes.size()) {
      return std::string_view::npos;
    }
    return bytes[at + 1] == '\n' ? at + 2 : at + 1;
  }
  return newline == nullptr ? std::string_view::npos : before + 1;
}

// Returns the size of the piece to pass on of an overlong line. What stays may go on: a "\r", which is undecided, and
// the beginning of an uncut text.
std::size_t piece_size(std::string_view line, std::span<const std::string> uncut) {
  line.remove_suffix(line.ends_with('\r') ? 1 : 0);
  std::size_t begun = 0;
  for (const std::string& text : uncut) {
    begun = std::max(begun, begun_at_end(line, text));
  }
  return line.size() - begun;
}

}  // namespace

void LineSplitter::feed(std::string_view bytes, const Emit& emit, std::span<const std::string> uncut) {
  // The bytes kept from earlier reads hold no terminator, so they are not searched again. Their last byte may be an
  // undecided "\r".
  while (!bytes.empty() && !partial_.empty()) {
    if (partial_.back() == '\r') {
      const bool is_pair = bytes.front() == '\n';
      if (is_pair) {
        partial_ += '\n';
        bytes.remove_prefix(1);
      }
      emit(partial_);
      partial_.clear();
      break;
    }
    const std::size_t end = line_end(bytes);
    const bool is_whole = end != std::string_view::npos;
    partial_.append(bytes.substr(0, end));
    bytes.remove_prefix(is_whole ? end : bytes.size());
    if (is_whole) {
      emit(partial_);
      partial_.clear();
    }
  }
  std::size_t end = 0;
  while (!bytes.empty() && (end = line_end(bytes)) != std::string_view::npos) {
    emit(bytes.substr(0, end));
    bytes.remove_prefix(end);
  }
  partial_.append(bytes);
  if (partial_.size() > kMaxLineBytes) {
    const std::size_t size = piece_size(partial_, uncut);
    emit(std::string_view(partial_).substr(0, size));
    partial_.erase(0, size);
  }
}

void LineSplitter::finish(const Emit& emit) {
  if (!partial_.empty()) {
    emit(partial_);
    partial_.clear();
  }
}

}  // namespace hvd::launch
