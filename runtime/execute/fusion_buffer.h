// FusionBuffer is the staging memory in which several small tensors travel as one.
//
// It is made when first needed and kept, and never shrinks; the fusion plan, or the largest group, bounds its size.
// Thread: engine only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/result.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

class FusionBuffer {
 public:
  // Returns memory for data that the caller packs itself, valid until the next call. kResource: there is not enough
  // memory.
  Result<std::span<std::byte>> reserve(std::size_t size_bytes);
  // Packs the inputs of `ops` one after the other, and returns where; valid until the next pack(). kResource: there is
  // not enough memory.
  Result<std::span<std::byte>> pack(std::span<PendingOp* const> ops);
  // Copies back into the outputs of the same ops.
  void unpack(std::span<PendingOp* const> ops) const;

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

// The bytes of an operation's input; its shape was checked when it was submitted.
std::size_t input_bytes(const Submission& what);

}  // namespace hvd
