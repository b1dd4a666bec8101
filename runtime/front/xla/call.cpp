#include "runtime/front/xla/call.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace hvd::xla {
namespace {

Failure invalid(std::string text) {
  return {kInvalidArgument, std::move(text)};
}

struct TypeRow {
  int type;
  int dtype;
  std::int64_t size;
  bool is_moved_only;  // libhvd can send this type as another of its size, but cannot reduce it
};

constexpr TypeRow kTypes[] = {
    {kPred, HVD_BOOL, 1, false},     {kS8, HVD_INT8, 1, false},     {kS16, HVD_INT16, 2, false},
    {kS32, HVD_INT32, 4, false},     {kS64, HVD_INT64, 8, false},   {kU8, HVD_UINT8, 1, false},
    {kU16, HVD_UINT16, 2, false},    {kU32, HVD_INT32, 4, true},    {kU64, HVD_INT64, 8, true},
    {kF16, HVD_FLOAT16, 2, false},   {kF32, HVD_FLOAT32, 4, false}, {kF64, HVD_FLOAT64, 8, false},
    {kBf16, HVD_BFLOAT16, 2, false}, {kC64, HVD_INT64, 8, true},
};

std::int64_t g_nothing = 0;  // the address of empty tensors; never read or written

const TypeRow* row_of(int type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) {
      return &row;
    }
  }
  return nullptr;
}

std::int64_t elements_of(const Buffer& buffer) {
  std::int64_t elements = 1;
  for (std::int64_t i = 0; i < buffer.rank; ++i) {
    elements *= buffer.dims[i];
  }
  return elements;
}

// Returns null if there is no such attribute, or it has another type.
const void* attribute(const Attributes& attributes, std::string_view name, int type) {
  for (std::int64_t i = 0; i < attributes.count; ++i) {
    const Span& span = *attributes.names[i];
    if (std::string_view(span.text, span.length) == name && attributes.types[i] == type) {
      return attributes.values[i];
    }
  }
  return nullptr;
}

template <typename T>
bool read_scalar(const Attributes& attributes, std::string_view name, int type, T& value) {
  const auto* scalar = static_cast<const Scalar*>(attribute(attributes, name, kScalarAttribute));
  if (scalar == nullptr || scalar->type != type) {
    return false;
  }
  std::memcpy(&value, scalar->value, sizeof value);
  return true;
}

int read_int(const Attributes& attributes, std::string_view name, int otherwise) {
  std::int64_t value = 0;
  return read_scalar(attributes, name, kS64, value) ? static_cast<int>(value) : otherwise;
}

double read_double(const Attributes& attributes, std::string_view name) {
  double value = 1.0;
  read_scalar(attributes, name, kF64, value);
  return value;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::optional<Failure> read_tensors(const Frame& frame, Call& call) {
  const auto* names = static_cast<const Span*>(attribute(frame.attributes, "names", kStringAttribute));
  if (names == nullptr) {
    return invalid("a collective has no attribute 'names'");
  }
  std::vector<std::string> lines = lines_of({names->text, names->length});
  const auto operands = static_cast<std::size_t>(frame.arguments.count);
  const std::size_t unnamed = read_int(frame.attributes, "ordered", 0) != 0 ? 1 : 0;
  if (frame.results.count != frame.arguments.count || lines.size() + unnamed != operands) {
    return invalid("a collective has " + std::to_string(frame.arguments.count) + " operands, " +
                   std::to_string(frame.results.count) + " results and " + std::to_string(lines.size()) +
                   " names, where it needs as many of each");
  }
  call.tensors.resize(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Call::Tensor& tensor = call.tensors[i];
    tensor.name = std::move(lines[i]);
    if (frame.arguments.types[i] != kBufferValue || frame.results.types[i] != kBufferValue) {
      return invalid(tensor.name + ": an operand or result is no tensor");
    }
    const auto& input = *static_cast<const Buffer*>(frame.arguments.values[i]);
    const auto& result = *static_cast<const Buffer*>(frame.results.values[i]);
    const TypeRow* row = row_of(input.type);
    const bool calculates = call.kind == HVD_ALLREDUCE || call.kind == HVD_REDUCESCATTER;
    if (row == nullptr || result.type != input.type || (row->is_moved_only && calculates)) {
      return invalid(tensor.name + ": elements of XLA's type " + std::to_string(input.type) + " cannot be " +
                     (calculates ? "reduced" : "sent") + "; convert them to float32 or int32 before");
    }
    tensor.dtype = row->dtype;
    // XLA may pass a null address for an empty tensor.
    tensor.input = input.data == nullptr ? &g_nothing : input.data;
    tensor.result = result.data == nullptr ? &g_nothing : result.data;
    tensor.shape.assign(input.dims, input.dims + input.rank);
    tensor.result_bytes = elements_of(result) * row->size;
    const std::int64_t input_bytes = elements_of(input) * row->size;
    if (!call.has_fetched_results() && input_bytes != tensor.result_bytes) {
      return invalid(tensor.name + ": operand and result differ in size");
    }
    call.bytes += input_bytes;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Failure> read_call(const Frame& frame, Call& call) {
  call.kind = read_int(frame.attributes, "kind", -1);
  switch (call.kind) {
    case HVD_ALLREDUCE:
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_REDUCESCATTER:
    case HVD_ALLTOALL:
      break;
    default:
      return invalid("a collective of kind " + std::to_string(call.kind) + " is none that a compiled program can do");
  }
  call.reduce_op = read_int(frame.attributes, "op", HVD_SUM);
  call.root_rank = read_int(frame.attributes, "root_rank", 0);
  call.process_set = read_int(frame.attributes, "process_set", 0);
  call.told_device = read_int(frame.attributes, "device", 0);
  call.prescale = read_double(frame.attributes, "prescale");
  call.postscale = read_double(frame.attributes, "postscale");
  return read_tensors(frame, call);
}

hvd_op Call::op_of(const Tensor& tensor) const {
  hvd_op op = HVD_OP_INIT;
  op.kind = kind;
  op.dtype = tensor.dtype;
  op.reduce_op = reduce_op;
  op.root_rank = root_rank;
  op.process_set = process_set;
  op.device = device;
  op.stream = stream;
  op.prescale = prescale;
  op.postscale = postscale;
  op.ndim = static_cast<std::int32_t>(tensor.shape.size());
  op.shape = tensor.shape.data();
  op.name = tensor.name.c_str();
  op.input = tensor.input;
  op.output = has_fetched_results() ? nullptr : tensor.result;
  return op;
}

}  // namespace hvd::xla
