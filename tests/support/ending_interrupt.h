// EndingInterrupt: a job that is over when it has been asked about so often.
#pragma once

#include "runtime/base/interrupt.h"

namespace hvd::test {

class EndingInterrupt final : public Interrupt {
 public:
  explicit EndingInterrupt(int asks) : left_(asks) {}
  Result<void> check() override { return --left_ > 0 ? Result<void>() : Error(Code::kLostPeer, "rank 9 died"); }

 private:
  int left_;
};

}  // namespace hvd::test
