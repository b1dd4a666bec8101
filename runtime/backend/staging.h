// Staging: memory that an operation needs while it runs, kept for the next one. Never shrinks. Thread: engine only.
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
  // At least that many bytes, uninitialised, good until the next call; kResource when there are none.
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
