// Frames divide a byte stream into messages, in all our protocols (launcher and agent, agent and rank, rank and rank).
//
// On the wire, little-endian: u32 magic | u16 version | u16 type | u32 length | length bytes. Each protocol has its own
// FrameSpec. So a peer of the wrong kind is refused at its first bytes, and no length is accepted without a bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/result.h"

namespace hvd {

struct FrameSpec {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint32_t max_length = 0;  // of one body
  const char* what = "";         // the protocol's name in error texts, such as "agent"
};

struct Frame {
  std::uint16_t type = 0;
  std::string body;
};

inline constexpr std::size_t kFrameHeaderBytes = 12;

// Appends a frame's header to `out`. The caller appends the body of `length` bytes, which must fit into
// spec.max_length.
void append_frame_header(std::string& out, const FrameSpec& spec, std::uint16_t type, std::size_t length);
// Appends one frame to `out`. The body must fit into spec.max_length.
void append_frame(std::string& out, const FrameSpec& spec, std::uint16_t type, std::string_view body);
std::string make_frame(const FrameSpec& spec, std::uint16_t type, std::string_view body);

// FrameDecoder is an incremental decoder: it takes bytes as they arrive, and returns frames when they are complete.
// After an error the connection is useless, and the decoder stays failed.
class FrameDecoder {
 public:
  explicit FrameDecoder(const FrameSpec& spec) : spec_(spec) {}

  void feed(Bytes bytes);
  // Returns the next complete frame, nullopt if more bytes are needed, or the reason why the stream is refused.
  Result<std::optional<Frame>> next();
  // Does the same into a frame whose memory is reused; returns false if more bytes are needed.
  Result<bool> next(Frame& into);
  // The bytes of a frame that is not complete yet.
  [[nodiscard]] std::size_t buffered() const { return buffer_.size() - start_; }

 private:
  FrameSpec spec_;
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace hvd
