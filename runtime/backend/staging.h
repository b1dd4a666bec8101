// Staging is scratch memory that an operation needs while it runs; it is kept for the next operation, so that a
// training step allocates nothing. It never shrinks. Thread: engine only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "runtime/base/result.h"

namespace hvd {

class Staging {
 public:
  // Returns at least that many bytes, uninitialised, valid until the next call. kResource: there is not enough memory.
  Result<std::uint8_t*> reserve(std::size_t size_bytes) {
    if (size_bytes > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_.reset(new (std::nothrow) std::uint8_t[size_bytes]);
      if (memory_ == nullptr) {
        return Error(Code::kResource,
                     "out of memory: no " + std::to_string(size_bytes) + " bytes to exchange data with other nodes");
      }
      capacity_ = size_bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::uint8_t[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace hvd
