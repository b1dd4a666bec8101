// JumpingClock: real time that the test puts forward, as for a process that was stopped meanwhile.
#pragma once

#include <chrono>

#include "runtime/base/clock.h"

namespace hvd::test {

class JumpingClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now() + jumped; }
  Duration jumped{};
};

}  // namespace hvd::test
