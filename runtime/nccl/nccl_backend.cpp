#include "runtime/nccl/nccl_backend.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd {
namespace {

// Returns nothing if NCCL has no such type. A bool is a byte of 0 or 1.
std::optional<NcclType> type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
    case Dtype::kBool:
      return NcclType::kUint8;
    case Dtype::kInt8:
      return NcclType::kInt8;
    case Dtype::kInt32:
      return NcclType::kInt32;
    case Dtype::kInt64:
      return NcclType::kInt64;
    case Dtype::kFloat16:
      return NcclType::kFloat16;
    case Dtype::kBfloat16:
      return NcclType::kBfloat16;
    case Dtype::kFloat32:
      return NcclType::kFloat32;
    case Dtype::kFloat64:
      return NcclType::kFloat64;
    case Dtype::kUint16:
    case Dtype::kInt16:
      return std::nullopt;
  }
  return std::nullopt;
}

// For bools a sum is "or" and a product is "and", whose results stay 0 or 1.
NcclOp op_of(ReduceOp op, Dtype dtype) {
  const bool is_bool = dtype == Dtype::kBool;
  switch (op) {
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    case ReduceOp::kProduct:
      return is_bool ? NcclOp::kMin : NcclOp::kProduct;
    default:
      HVD_CHECK(op == ReduceOp::kSum);
      return is_bool ? NcclOp::kMax : NcclOp::kSum;
  }
}

const std::uint8_t* at(const void* data, std::size_t offset) {
  return static_cast<const std::uint8_t*>(data) + offset;
}
std::uint8_t* at(void* data, std::size_t offset) {
  return static_cast<std::uint8_t*>(data) + offset;
}

bool are_equal(const std::vector<std::size_t>& sizes) {
  return std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) == sizes.end();
}

}  // namespace

bool NcclBackend::reduces(Dtype dtype) {
  return type_of(dtype).has_value();
}

Result<void> NcclBackend::allreduce(const void* input, void* out, std::size_t count, Dtype dtype, ReduceOp op,
                                    Interrupt& interrupt) {
  const auto type = type_of(dtype);
  HVD_CHECK(type.has_value());
  return comm_->launch(
      [&](const NcclFunctions& calls, NcclHandle comm) {
        return comm_->check(calls.all_reduce(input, out, count, *type, op_of(op, dtype), comm, stream_),
                            "ncclAllReduce");
      },
      interrupt);
}

Result<void> NcclBackend::broadcast(const void* input, void* out, std::size_t size_bytes, int root,
                                    Interrupt& interrupt) {
  return comm_->launch(
      [&](const NcclFunctions& calls, NcclHandle comm) {
        return comm_->check(calls.broadcast(input, out, size_bytes, NcclType::kUint8, root, comm, stream_),
                            "ncclBroadcast");
      },
      interrupt);
}

Result<void> NcclBackend::allgather(std::span<const Gather> tensors, Interrupt& interrupt) {
  return comm_->launch(
      [&](const NcclFunctions& calls, NcclHandle comm) -> Result<void> {
        for (const Gather& tensor : tensors) {
          HVD_TRY(gather(calls, comm, tensor));
        }
        return {};
      },
      interrupt);
}

// Uneven parts are sent from each rank to each.
Result<void> NcclBackend::gather(const NcclFunctions& calls, NcclHandle comm, const Gather& tensor) const {
  const auto self = static_cast<std::size_t>(comm_->place().rank);
  HVD_CHECK(tensor.sizes.size() == static_cast<std::size_t>(comm_->place().size));
  if (are_equal(tensor.sizes)) {
    return comm_->check(
        calls.all_gather(tensor.input, tensor.out, tensor.sizes.front(), NcclType::kUint8, comm, stream_),
        "ncclAllGather");
  }
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < tensor.sizes.size(); ++rank) {
    HVD_TRY(send(calls, comm, tensor.input, tensor.sizes[self], static_cast<int>(rank)));
    HVD_TRY(receive(calls, comm, at(tensor.out, offset), tensor.sizes[rank], static_cast<int>(rank)));
    offset += tensor.sizes[rank];
  }
  return {};
}

Result<void> NcclBackend::reducescatter(std::span<const Scatter> tensors, Dtype dtype, ReduceOp op,
                                        Interrupt& interrupt) {
  return comm_->launch(
      [&](const NcclFunctions& calls, NcclHandle comm) -> Result<void> {
        for (const Scatter& tensor : tensors) {
          HVD_TRY(scatter(calls, comm, tensor, dtype, op));
        }
        return {};
      },
      interrupt);
}

// Uneven parts take one reduction each, to the rank that receives the part.
Result<void> NcclBackend::scatter(const NcclFunctions& calls, NcclHandle comm, const Scatter& tensor, Dtype dtype,
                                  ReduceOp op) const {
  const auto type = type_of(dtype);
  HVD_CHECK(type.has_value() && tensor.sizes.size() == static_cast<std::size_t>(comm_->place().size));
  if (are_equal(tensor.sizes)) {
    const std::size_t count = tensor.sizes.front() / size_of(dtype);
    return comm_->check(calls.reduce_scatter(tensor.input, tensor.out, count, *type, op_of(op, dtype), comm, stream_),
                        "ncclReduceScatter");
  }
  std::size_t offset = 0;
  for (std::size_t rank = 0; rank < tensor.sizes.size(); ++rank) {
    const std::size_t bytes = tensor.sizes[rank];
    if (bytes != 0) {
      HVD_TRY(comm_->check(calls.reduce(at(tensor.input, offset), tensor.out, bytes / size_of(dtype), *type,
                                        op_of(op, dtype), static_cast<int>(rank), comm, stream_),
                           "ncclReduce"));
    }
    offset += bytes;
  }
  return {};
}

Result<void> NcclBackend::alltoall(const void* input, std::span<const std::size_t> sizes, void* out,
                                   Interrupt& interrupt) {
  const auto ranks = static_cast<std::size_t>(comm_->place().size);
  const auto self = static_cast<std::size_t>(comm_->place().rank);
  HVD_CHECK(sizes.size() == ranks * ranks);
  return comm_->launch(
      [&](const NcclFunctions& calls, NcclHandle comm) -> Result<void> {
        std::size_t sent = 0;
        std::size_t received = 0;
        for (std::size_t other = 0; other < ranks; ++other) {
          const std::size_t to_other = sizes[self * ranks + other];
          const std::size_t from_other = sizes[other * ranks + self];
          HVD_TRY(send(calls, comm, at(input, sent), to_other, static_cast<int>(other)));
          HVD_TRY(receive(calls, comm, at(out, received), from_other, static_cast<int>(other)));
          sent += to_other;
          received += from_other;
        }
        return {};
      },
      interrupt);
}

// Both ends know the sizes, and skip empty messages.
Result<void> NcclBackend::send(const NcclFunctions& calls, NcclHandle comm, const void* data, std::size_t bytes,
                               int to) const {
  return bytes == 0 ? Result<void>()
                    : comm_->check(calls.send(data, bytes, NcclType::kUint8, to, comm, stream_), "ncclSend");
}

Result<void> NcclBackend::receive(const NcclFunctions& calls, NcclHandle comm, void* data, std::size_t bytes,
                                  int from) const {
  return bytes == 0 ? Result<void>()
                    : comm_->check(calls.recv(data, bytes, NcclType::kUint8, from, comm, stream_), "ncclRecv");
}

}  // namespace hvd
