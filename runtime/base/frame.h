// Frames: how every conversation of ours is cut into messages (launcher and agent, agent and rank, rank and rank).
//
// On the wire, little-endian: u32 magic | u16 version | u16 type | u32 length | length bytes. Each conversation has its
// own FrameSpec, so that a peer of the wrong kind is refused at its first bytes and no length is trusted unbounded.
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
  std::uint32_t max_length = 0;  // bytes of one body
  const char* what = "";         // "agent", for messages
};

struct Frame {
  std::uint16_t type = 0;
  std::string body;
};

inline constexpr std::size_t kFrameHeaderBytes = 12;

// Appends a frame's header to `out`; its body of so many bytes, which must fit spec.max_length, is the caller's.
void append_frame_header(std::string& out, const FrameSpec& spec, std::uint16_t type, std::size_t length);
// Appends one frame to `out`. The body must fit spec.max_length.
void append_frame(std::string& out, const FrameSpec& spec, std::uint16_t type, std::string_view body);
std::string make_frame(const FrameSpec& spec, std::uint16_t type, std::string_view body);

// Incremental decoder: give it bytes as they come, take frames as they become whole. After an error the conversation
// is over; the decoder stays failed.
class FrameDecoder {
 public:
  explicit FrameDecoder(const FrameSpec& spec) : spec_(spec) {}

  void feed(Bytes bytes);
  // The next whole frame, nullopt when more bytes are needed, or the reason why the stream is refused.
  Result<std::optional<Frame>> next();
  // The same into a frame whose memory is used again; false when more bytes are needed.
  Result<bool> next(Frame& into);
  // Bytes of a frame that is not whole yet.
  [[nodiscard]] std::size_t buffered() const { return buffer_.size() - start_; }

 private:
  FrameSpec spec_;
  std::string buffer_;
  std::size_t start_ = 0;
};

}  // namespace hvd
