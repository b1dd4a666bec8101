// ResendQueue: the frames of a session that the other end has not acknowledged, so that a new connection goes on
// exactly where the old one broke. Both ends number the frames of a session from 0 by counting them (is_numbered), so
// that no number travels with a frame; what travels is the count of frames that have come.
//
// What it holds is bounded by the session: output by its credit, the rest by being few. Thread: loop only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

class ResendQueue {
 public:
  // A frame that is sent now, or as soon as there is a connection. Shared: what goes to all nodes of a large job is
  // kept once, and not once for each.
  void keep(std::shared_ptr<const std::string> frame);
  // The other end has `received` frames of this session. Refused when it never got so many, or had more before.
  Result<void> acknowledge(std::uint64_t received);
  // All that is not acknowledged, in order.
  [[nodiscard]] std::string unacknowledged() const;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::deque<std::shared_ptr<const std::string>> frames_;
  std::uint64_t first_ = 0;  // the number of frames_.front()
  std::size_t bytes_ = 0;
};

}  // namespace hvd::launch
