// hvd_set_memory: it looks at a framework's tensors through DLPack's C structure, so that a list of tensors costs no
// call of the framework's language for each property of each tensor.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "hvd/hvd.h"
#include "runtime/abi/fence.h"

namespace {

using hvd::Code;
using hvd::Error;
using hvd::missing;
using hvd::Result;

// DlTensor is DLTensor of DLPack, version 1.
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  const std::int64_t* shape;
  const std::int64_t* strides;  // in elements; may be null if the tensor is contiguous
  std::uint64_t byte_offset;
};
static_assert(sizeof(DlTensor) == 48);

constexpr std::int32_t kDlCpu = 1;

// DLPack's code and bits of each of our types, by its number.
struct DlType {
  std::uint8_t code;
  std::uint8_t bits;
};
constexpr std::uint8_t kDlInt = 0;
constexpr std::uint8_t kDlUint = 1;
constexpr std::uint8_t kDlFloat = 2;
constexpr std::uint8_t kDlBfloat = 4;
constexpr std::uint8_t kDlBool = 6;
constexpr DlType kDlTypes[] = {{kDlUint, 8},   {kDlInt, 8},    {kDlUint, 16},  {kDlInt, 16},
                               {kDlInt, 32},   {kDlInt, 64},   {kDlFloat, 16}, {kDlBfloat, 16},
                               {kDlFloat, 32}, {kDlFloat, 64}, {kDlBool, 8}};

bool is_contiguous(const DlTensor& tensor) {
  const auto shape = std::span(tensor.shape, static_cast<std::size_t>(tensor.ndim));
  if (tensor.strides == nullptr || std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return true;
  }
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && tensor.strides[i] != stride) {
      return false;
    }
    stride *= shape[i];
  }
  return true;
}

bool fits(const DlTensor& tensor, const hvd_op& op) {
  if (tensor.device_type != kDlCpu || op.dtype < 0 || op.dtype >= static_cast<std::int32_t>(std::size(kDlTypes))) {
    return false;
  }
  const bool has_shapes = op.ndim == 0 || (op.shape != nullptr && tensor.shape != nullptr);
  if (op.ndim < 0 || op.ndim > HVD_MAX_DIMS || !has_shapes) {
    return false;
  }
  const DlType type = kDlTypes[op.dtype];
  return tensor.type_code == type.code && tensor.type_bits == type.bits && tensor.type_lanes == 1 &&
         tensor.ndim == op.ndim && std::equal(tensor.shape, tensor.shape + tensor.ndim, op.shape) &&
         is_contiguous(tensor);
}

}  // namespace

extern "C" {

hvd_status hvd_set_memory(hvd_op* const* ops, void* const* objects, int32_t count, int32_t which,
                          hvd_tensor_view view) {
  return hvd::fence([&]() -> Result<void> {
    if (ops == nullptr || objects == nullptr || view == nullptr) {
      return missing("hvd_set_memory: ops, objects or view");
    }
    if (count < 0) {
      return Error(Code::kInvalid, "hvd_set_memory: count is negative");
    }
    for (std::int32_t i = 0; i < count; ++i) {
      if (ops[i] == nullptr) {
        return missing("hvd_set_memory: an operation");
      }
      DlTensor tensor{};
      if (view(objects[i], &tensor) != 0 || !fits(tensor, *ops[i])) {
        return Error(Code::kMismatch, "hvd_set_memory: tensor " + std::to_string(i) +
                                          " is not such a one as operation " + std::to_string(i) + " was made for");
      }
      auto* const data = static_cast<std::uint8_t*>(tensor.data) + tensor.byte_offset;
      if ((which & HVD_INPUT) != 0) {
        ops[i]->input = data;
      }
      if ((which & HVD_OUTPUT) != 0) {
        ops[i]->output = data;
      }
    }
    return {};
  });
}

}  // extern "C"
