#include "runtime/execute/fusion_buffer.h"

#include <cstring>
#include <new>

#include "runtime/core/shape.h"

namespace hvd {

std::size_t input_bytes(const Submission& what) {
  const auto bytes = size_bytes_of(what.shape, what.dtype);
  HVD_CHECK(bytes.has_value());
  return *bytes;
}

Result<std::span<std::byte>> FusionBuffer::reserve(std::size_t size_bytes) {
  if (size_bytes > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_.reset(new (std::nothrow) std::byte[size_bytes]);
    if (memory_ == nullptr) {
      return Error(Code::kResource, "out of memory: no " + std::to_string(size_bytes) +
                                        " bytes for the fusion buffer; lower HOROVOD_FUSION_THRESHOLD");
    }
    capacity_ = size_bytes;
  }
  return std::span<std::byte>(memory_.get(), size_bytes);
}

Result<std::span<std::byte>> FusionBuffer::pack(std::span<PendingOp* const> ops) {
  std::size_t total = 0;
  for (const PendingOp* op : ops) {
    total += input_bytes(op->what);
  }
  HVD_TRY_ASSIGN(const std::span<std::byte> packed, reserve(total));
  std::size_t at = 0;
  for (const PendingOp* op : ops) {
    const std::size_t bytes = input_bytes(op->what);
    if (bytes > 0) {
      std::memcpy(memory_.get() + at, op->what.input, bytes);
    }
    at += bytes;
  }
  return packed;
}

void FusionBuffer::unpack(std::span<PendingOp* const> ops) const {
  std::size_t at = 0;
  for (const PendingOp* op : ops) {
    const std::size_t bytes = input_bytes(op->what);
    if (bytes > 0) {
      std::memcpy(op->what.output, memory_.get() + at, bytes);
    }
    at += bytes;
  }
}

}  // namespace hvd
