// Call: what one custom call of a compiled program asks for, read from the frame that XLA hands over.
//
// Value type. The memory of operands and results is XLA's, which keeps it until the call's future is done. The frame
// itself, with shapes and attributes, is XLA's again when the handler returns, so what is needed of it is copied.
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
    int dtype = 0;                    // of hvd.h
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
  std::vector<Tensor> tensors;
  std::int64_t bytes = 0;  // of all inputs

  // The result is memory of libhvd's, and copied from there.
  [[nodiscard]] bool has_fetched_results() const { return kind != HVD_ALLREDUCE && kind != HVD_BROADCAST; }
  // As libhvd takes it; it refers to the tensor.
  [[nodiscard]] hvd_op op_of(const Tensor& tensor) const;
};

// Attributes: "kind", "op", "root_rank", "process_set" (integers of 64 bits), "prescale", "postscale" (f64), and
// "names", one for each operand, with a line break between. All but kind and names may be left out.
std::optional<Failure> read_call(const Frame& frame, Call& call);

}  // namespace hvd::xla
