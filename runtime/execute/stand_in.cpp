#include "runtime/execute/stand_in.h"

#include <cstring>

#include "runtime/core/shape.h"

namespace hvd {

Result<PendingOp> make_stand_in(const Response& response, std::size_t index) {
  PendingOp op;
  op.what.kind = response.kind;
  op.what.name = response.names[index];
  op.what.dtype = response.dtype;
  op.what.op = response.op;
  op.what.prescale = response.prescale;
  op.what.postscale = response.postscale;
  op.what.shape = {response.counts[index]};
  const auto bytes = size_bytes_of(op.what.shape, op.what.dtype);
  HVD_CHECK(bytes.has_value());  // a larger one was refused when the response was decoded
  HVD_TRY_ASSIGN(op.output, OwnedOutput::allocate(*bytes, op.what.shape));
  std::memset(op.output->data.get(), 0, *bytes);
  op.what.input = op.output->data.get();
  op.what.output = op.output->data.get();
  return op;
}

PendingOp make_set_stand_in(const Response& response) {
  PendingOp op;
  op.what.kind = response.kind;
  op.what.name = response.names.front();
  op.what.numbers = response.numbers;
  return op;
}

}  // namespace hvd
