// FusionBuffer: the staging memory in which several small tensors travel as one.
//
// Made when first needed and kept; it never shrinks, and the fusion plan, or the largest group, bounds it. Thread:
// engine only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/result.h"
#include "runtime/execute/submit_queue.h"

namespace hvd {

class FusionBuffer {
 public:
  // Memory for what is packed otherwise, valid until the next call. kResource when there is none.
  Result<std::span<std::byte>> reserve(std::size_t size_bytes);
  // Inputs of `ops` one after the other; returns where, valid until the next pack(). kResource when there is no memory.
  Result<std::span<std::byte>> pack(std::span<PendingOp* const> ops);
  // The reverse, into the outputs of the same ops.
  void unpack(std::span<PendingOp* const> ops) const;

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

// Bytes of an operation's input; its shape was checked when it was submitted.
std::size_t input_bytes(const Submission& what);

}  // namespace hvd
