// StillClock: stands still until the test puts it forward, so that nothing is late however busy the machine is.
#pragma once

#include <chrono>

#include "runtime/base/clock.h"

namespace hvd::test {

class StillClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return at_; }
  void advance(Duration by) { at_ += by; }

 private:
  TimePoint at_ = std::chrono::steady_clock::now();
};

}  // namespace hvd::test
