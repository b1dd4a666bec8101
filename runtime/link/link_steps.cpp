#include "runtime/link/link_steps.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr std::uint32_t kFrameMagic = 0x46445648U;  // "HVDF"

struct Fields {
  std::uint32_t magic = kFrameMagic;
  std::uint32_t operation = 0;
  std::uint32_t frame = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Fields) == LinkSteps::kMarkBytes);

}  // namespace

LinkSteps::LinkSteps(LinkCount& count, std::uint64_t bytes, bool is_sender)
    : count_(&count), is_sender_(is_sender), operation_(count.operations), left_(bytes), is_over_(bytes == 0) {
  if (!is_over_) {
    ++count_->operations;
    begin_frame();
    mark_ = is_sender_ ? expected_ : Mark{};
  }
}

LinkSteps::Mark LinkSteps::mark_with(std::uint32_t number, std::size_t bytes) const {
  // The machine is little-endian, like the wire (bytes.h).
  return std::bit_cast<Mark>(Fields{kFrameMagic, operation_, number, static_cast<std::uint32_t>(bytes)});
}

// Prepares the next mark and the frame after it. The sender knows that frame's end mark too.
void LinkSteps::begin_frame() {
  frame_left_ = static_cast<std::size_t>(std::min<std::uint64_t>(left_, kFrameBytes));
  left_ -= frame_left_;
  expected_ = mark_with(count_->marks++, frame_left_);
  if (is_sender_) {
    next_ = mark_with(count_->marks, static_cast<std::size_t>(std::min<std::uint64_t>(left_, kFrameBytes)));
  }
  mark_moved_ = 0;
}

std::size_t LinkSteps::parts(const iovec* data, std::size_t data_count, iovec* parts) {
  const bool is_last_mark = frame_left_ == 0;
  if (is_over_ || (is_sender_ && !is_last_mark && data_count == 0)) {
    return 0;
  }
  std::size_t count = 0;
  if (mark_moved_ < kMarkBytes) {
    parts[count++] = iovec{mark_.data() + mark_moved_, kMarkBytes - mark_moved_};
  }
  std::size_t room = frame_left_;
  for (std::size_t i = 0; i < data_count && room > 0; ++i) {
    const std::size_t bytes = std::min(data[i].iov_len, room);
    parts[count++] = iovec{data[i].iov_base, bytes};
    room -= bytes;
  }
  if (!is_last_mark && room == 0) {
    parts[count++] = iovec{next_.data(), kMarkBytes};
  }
  return count;
}

std::optional<std::size_t> LinkSteps::note(std::size_t bytes) {
  std::size_t data = 0;
  for (;;) {
    if (mark_moved_ < kMarkBytes) {
      const std::size_t moved = std::min(bytes, kMarkBytes - mark_moved_);
      mark_moved_ += moved;
      bytes -= moved;
      if (mark_moved_ < kMarkBytes) {
        return data;
      }
      if (mark_ != expected_) {
        return std::nullopt;
      }
      if (frame_left_ == 0) {
        HVD_CHECK(bytes == 0);
        is_over_ = true;
        return data;
      }
    }
    const std::size_t moved = std::min(bytes, frame_left_);
    data += moved;
    frame_left_ -= moved;
    bytes -= moved;
    if (frame_left_ > 0) {
      return data;
    }
    mark_ = next_;
    begin_frame();
  }
}

std::string LinkSteps::what_came() const {
  const auto came = std::bit_cast<Fields>(mark_);
  const auto meant = std::bit_cast<Fields>(expected_);
  const auto text = [](const Fields& mark) {
    return (mark.bytes == 0 ? "the end"
                            : "frame " + std::to_string(mark.frame) + " (" + std::to_string(mark.bytes) + " bytes)") +
           " of operation " + std::to_string(mark.operation);
  };
  return text(meant) + " was to come, and " +
         (came.magic == kFrameMagic ? text(came) + " has" : "what came is no frame");
}

}  // namespace hvd
