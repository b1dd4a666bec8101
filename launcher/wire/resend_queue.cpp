#include "launcher/wire/resend_queue.h"

#include <utility>

namespace hvd::launch {

void ResendQueue::keep(std::shared_ptr<const std::string> frame) {
  bytes_ += frame->size();
  frames_.push_back(std::move(frame));
}

Result<void> ResendQueue::acknowledge(std::uint64_t received) {
  const std::uint64_t sent = first_ + frames_.size();
  if (received < first_ || received > sent) {
    return Error(Code::kProtocol, "the other end has " + std::to_string(received) + " frames, of " +
                                      std::to_string(sent) + " that were sent and " + std::to_string(first_) +
                                      " that it had acknowledged");
  }
  for (; first_ < received; ++first_) {
    bytes_ -= frames_.front()->size();
    frames_.pop_front();
  }
  return {};
}

std::string ResendQueue::unacknowledged() const {
  std::string all;
  all.reserve(bytes_);
  for (const auto& frame : frames_) {
    all += *frame;
  }
  return all;
}

}  // namespace hvd::launch
