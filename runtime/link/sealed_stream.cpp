#include "runtime/link/sealed_stream.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/check.h"

namespace hvd {
namespace {

// Room for two records, so that one call may read more than one when the sender is fast.
constexpr std::size_t kReadBytes = 2 * (kRecordBytes + kRecordOverhead);
constexpr std::size_t kMostPieces = 32;

}  // namespace

Result<std::size_t> SealedStream::seal(std::span<const iovec> parts) {
  HVD_CHECK(unsent().empty());
  std::array<Bytes, kMostPieces> pieces;
  std::size_t count = 0;
  std::size_t length = 0;
  for (const iovec& part : parts.first(std::min(parts.size(), pieces.size()))) {
    const std::size_t bytes = std::min(part.iov_len, kRecordBytes - length);
    if (bytes == 0) {
      break;
    }
    pieces[count++] = Bytes(static_cast<const std::uint8_t*>(part.iov_base), bytes);
    length += bytes;
  }
  if (!wire_) {
    wire_ = std::make_unique_for_overwrite<std::uint8_t[]>(kRecordBytes + kRecordOverhead);
  }
  HVD_TRY(sealer_.seal_one(std::span(pieces).first(count), wire_.get()));
  wire_begin_ = 0;
  wire_end_ = length + kRecordOverhead;
  return length;
}

MutableBytes SealedStream::room() {
  return opener_.room(kReadBytes);
}

Result<bool> SealedStream::open_next() {
  HVD_CHECK(text_.empty());
  HVD_TRY_ASSIGN(const auto text, opener_.next());
  text_ = text.value_or(Bytes());
  return text.has_value();
}

std::size_t SealedStream::take(std::span<const iovec> parts) {
  std::size_t taken = 0;
  for (const iovec& part : parts) {
    const std::size_t bytes = std::min(part.iov_len, text_.size());
    std::memcpy(part.iov_base, text_.data(), bytes);
    text_ = text_.subspan(bytes);
    taken += bytes;
    if (text_.empty()) {
      break;
    }
  }
  return taken;
}

}  // namespace hvd
