#include "runtime/base/frame.h"

#include "runtime/base/check.h"

namespace hvd {

void append_frame_header(std::string& out, const FrameSpec& spec, std::uint16_t type, std::size_t length) {
  HVD_CHECK(length <= spec.max_length);
  ByteWriter header;
  header.u32(spec.magic).u16(spec.version).u16(type).u32(static_cast<std::uint32_t>(length));
  out += header.str();
}

void append_frame(std::string& out, const FrameSpec& spec, std::uint16_t type, std::string_view body) {
  append_frame_header(out, spec, type, body.size());
  out += body;
}

std::string make_frame(const FrameSpec& spec, std::uint16_t type, std::string_view body) {
  std::string out;
  out.reserve(kFrameHeaderBytes + body.size());
  append_frame(out, spec, type, body);
  return out;
}

void FrameDecoder::feed(Bytes bytes) {
  // Drop consumed bytes only when that is worth moving the rest.
  if (start_ > 0 && (start_ == buffer_.size() || start_ > (1U << 16U))) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_.append(as_text(bytes));
}

Result<std::optional<Frame>> FrameDecoder::next() {
  Frame frame;
  HVD_TRY_ASSIGN(const bool is_whole, next(frame));
  return is_whole ? std::optional(std::move(frame)) : std::nullopt;
}

Result<bool> FrameDecoder::next(Frame& into) {
  ByteReader reader(std::string_view(buffer_).substr(start_));
  if (reader.left() < kFrameHeaderBytes) {
    return false;
  }
  const std::uint32_t magic = reader.u32();
  const std::uint16_t version = reader.u16();
  const std::uint16_t type = reader.u16();
  const std::uint32_t length = reader.u32();
  const auto what = [this] { return std::string(spec_.what); };
  if (magic != spec_.magic) {
    return Error(Code::kProtocol, "not a frame of the " + what() + " conversation (wrong magic)");
  }
  if (version != spec_.version) {
    return Error(Code::kProtocol, what() + " conversation version " + std::to_string(version) + ", expected " +
                                      std::to_string(spec_.version) + "; both ends must be of one hvdrun");
  }
  if (length > spec_.max_length) {
    return Error(Code::kProtocol, what() + " frame of " + std::to_string(length) + " bytes, more than the limit of " +
                                      std::to_string(spec_.max_length));
  }
  if (reader.left() < length) {
    return false;
  }
  into.type = type;
  into.body.assign(as_text(reader.take(length)));
  start_ += kFrameHeaderBytes + length;
  return true;
}

}  // namespace hvd
