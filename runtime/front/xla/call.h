// Call holds the parameters of one custom call of a compiled program, read from the frame that XLA passes.
//
// Value type. XLA owns the memory of operands and results, and keeps it until the call's future is done. The frame
// itself, with shapes and attributes, is invalid when the handler has returned, so the needed parts are copied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hvd/hvd.h"
#include "runtime/front/xla/ffi_abi.h"

namespace hvd::xla {

struct Failure {
  int code = kInternal;
  std::string text;
};

struct Call {
  struct Tensor {
    std::string name;
    int dtype = 0;                    // one of hvd.h's
    std::vector<std::int64_t> shape;  // of the operand
    void* input = nullptr;
    void* result = nullptr;
    std::int64_t result_bytes = 0;
  };

  int kind = HVD_ALLREDUCE;
  int reduce_op = HVD_SUM;
  int root_rank = 0;
  int process_set = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  int told_device = 0;          // the GPU's number, for where XLA does not say it
  int device = HVD_DEVICE_CPU;  // that has the memory of operands and results
  void* stream = nullptr;       // of the program, where it is a GPU
  std::vector<Tensor> tensors;
  std::int64_t bytes = 0;  // of all inputs

  // True if libhvd allocates the result, which is then copied to XLA's memory.
  [[nodiscard]] bool has_fetched_results() const { return kind != HVD_ALLREDUCE && kind != HVD_BROADCAST; }
  // Returns the operation for libhvd; it refers to the tensor, which must stay.
  [[nodiscard]] hvd_op op_of(const Tensor& tensor) const;
};

// Reads the attributes "kind", "op", "root_rank", "process_set", "device" (integers of 64 bits), "prescale",
// "postscale" (f64), and "names": one for each operand, separated by line breaks. All but kind and names may be left
// out. With "ordered" there are one operand and one result more. Nobody reads them, but XLA runs the call after that
// which makes the operand.
std::optional<Failure> read_call(const Frame& frame, Call& call);

}  // namespace hvd::xla
