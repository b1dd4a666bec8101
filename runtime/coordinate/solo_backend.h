// SoloBackend is the Backend of a job of one rank, where every collective is the identity, so that it needs no links.
#pragma once

#include <cstring>

#include "runtime/backend/backend.h"

namespace hvd {

class SoloBackend final : public Backend {
 public:
  Result<void> allreduce(void*, std::size_t, Dtype, ReduceOp, Interrupt&) override { return {}; }
  Result<void> adasum(std::span<const MutableBytes>, Dtype, std::span<const int>, Interrupt&) override { return {}; }
  Result<void> broadcast(void*, std::size_t, int, Interrupt&) override { return {}; }
  Result<void> allgather(const void* input, std::span<const std::size_t> sizes, void* out, Interrupt&) override {
    if (sizes.front() > 0) {
      std::memcpy(out, input, sizes.front());
    }
    return {};
  }
  Result<void> reducescatter(const void* input, std::span<const std::size_t> sizes, void* out, Dtype, ReduceOp,
                             Interrupt& interrupt) override {
    return allgather(input, sizes, out, interrupt);
  }
  Result<void> alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                        Interrupt& interrupt) override {
    return allgather(input, sizes, out, interrupt);
  }
  Result<void> barrier(Interrupt&) override { return {}; }
};

}  // namespace hvd
