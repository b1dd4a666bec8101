#include "runtime/front/tensorflow/operations.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <hvd/hvd.h>

#include "runtime/front/tensorflow/call.h"
#include "runtime/front/tensorflow/tf_abi.h"

namespace hvd::front::tf {

namespace {

#define HVD_TF_TYPES "{uint8, int8, uint16, int16, int32, int64, bfloat16, half, float, double, bool}"

struct Name {
  const char* operation;
  std::int32_t kind;
  bool is_group;
};

// The operation names that Horovod's graphs use.
constexpr Name kNames[] = {
    {"HorovodAllreduce", HVD_ALLREDUCE, false},         {"HorovodGroupedAllreduce", HVD_ALLREDUCE, true},
    {"HorovodAllgather", HVD_ALLGATHER, false},         {"HorovodGroupedAllgather", HVD_ALLGATHER, true},
    {"HorovodReducescatter", HVD_REDUCESCATTER, false}, {"HorovodGroupedReducescatter", HVD_REDUCESCATTER, true},
    {"HorovodBroadcast", HVD_BROADCAST, false},         {"HorovodAlltoall", HVD_ALLTOALL, false},
};

bool is_reduction(std::int32_t kind) {
  return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER;
}

// --- shapes ----------------------------------------------------------------------------------------------------------

class Shape {
 public:
  Shape() : handle_(api.NewShapeHandle()) {}
  explicit Shape(ShapeHandle* owned) : handle_(owned) {}
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;
  ~Shape() { api.DeleteShapeHandle(handle_); }
  ShapeHandle* get() const { return handle_; }

 private:
  ShapeHandle* handle_;
};

void same_shapes(ShapeContext* context, Status* status) {
  const auto count = static_cast<int>(api.ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && api.GetCode(status) == kOk; ++i) {
    const Shape shape;
    api.ShapeInferenceContextGetInput(context, i, shape.get(), status);
    if (api.GetCode(status) == kOk) {
      api.ShapeInferenceContextSetOutput(context, i, shape.get(), status);
    }
  }
}

// Infers the input's shape with an unknown number of rows.
void other_rows(ShapeContext* context, int index, Status* status) {
  const Shape input;
  api.ShapeInferenceContextGetInput(context, index, input.get(), status);
  if (api.GetCode(status) != kOk) {
    return;
  }
  if (api.ShapeInferenceContextRankKnown(context, input.get()) == 0) {
    api.ShapeInferenceContextSetOutput(context, index, input.get(), status);
    return;
  }
  const std::int64_t rank = api.ShapeInferenceContextRank(context, input.get());
  if (rank == 0) {
    api.SetStatus(status, kInvalidArgument, "a tensor of at least one dimension is needed; this one is a scalar");
    return;
  }
  const Shape rows(api.ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1)));
  const Shape rest;
  const Shape output;
  api.ShapeInferenceContextSubshape(context, input.get(), 1, rank, rest.get(), status);
  if (api.GetCode(status) == kOk) {
    api.ShapeInferenceContextConcatenateShapes(context, rows.get(), rest.get(), output.get(), status);
  }
  if (api.GetCode(status) == kOk) {
    api.ShapeInferenceContextSetOutput(context, index, output.get(), status);
  }
}

void gathered_shapes(ShapeContext* context, Status* status) {
  const auto count = static_cast<int>(api.ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count && api.GetCode(status) == kOk; ++i) {
    other_rows(context, i, status);
  }
}

void alltoall_shapes(ShapeContext* context, Status* status) {
  other_rows(context, 0, status);
  if (api.GetCode(status) == kOk) {
    const Shape received(api.ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1)));
    api.ShapeInferenceContextSetOutput(context, 1, received.get(), status);
  }
}

void scalar_shape(ShapeContext* context, Status* status) {
  const Shape scalar(api.ShapeInferenceContextScalar(context));
  api.ShapeInferenceContextSetOutput(context, 0, scalar.get(), status);
}

ShapeFunction shapes_of(std::int32_t kind) {
  switch (kind) {
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
      return same_shapes;
    case HVD_ALLTOALL:
      return alltoall_shapes;
    default:
      return gathered_shapes;
  }
}

// --- attributes ------------------------------------------------------------------------------------------------------

class Attributes {
 public:
  explicit Attributes(Construction* construction) : construction_(construction) {}

  std::int32_t int32(const char* name) {
    std::int32_t value = 0;
    api.OpKernelConstruction_GetAttrInt32(construction_, name, &value, status_.get());
    return value;
  }
  bool boolean(const char* name) {
    unsigned char value = 0;
    api.OpKernelConstruction_GetAttrBool(construction_, name, &value, status_.get());
    return value != 0;
  }
  std::string text(const char* name) {
    std::int32_t list = 0;
    std::int32_t size = 0;
    api.OpKernelConstruction_GetAttrSize(construction_, name, &list, &size, status_.get());
    if (!status_.is_ok() || size <= 0) {
      return {};
    }
    std::string value(static_cast<std::size_t>(size), '\0');
    api.OpKernelConstruction_GetAttrString(construction_, name, value.data(), value.size(), status_.get());
    return value;
  }
  // The attribute `name` is a float, as in Horovod's graphs. `bits` is the same number as a double, and is used unless
  // 0.
  double scale(const char* name, const char* bits) {
    float value = 1.0F;
    std::int64_t exact = 0;
    api.OpKernelConstruction_GetAttrFloat(construction_, name, &value, status_.get());
    if (status_.is_ok()) {
      api.OpKernelConstruction_GetAttrInt64(construction_, bits, &exact, status_.get());
    }
    return exact != 0 ? std::bit_cast<double>(exact) : static_cast<double>(value);
  }
  // True if all attributes were there; else reports the error to TensorFlow.
  bool finish() {
    if (!status_.is_ok()) {
      api.OpKernelConstruction_Failure(construction_, status_.get());
    }
    return status_.is_ok();
  }

 private:
  Construction* const construction_;
  const StatusHolder status_;
};

// --- kernels ---------------------------------------------------------------------------------------------------------

template <std::size_t index>
void* create_node(Construction* construction) {
  constexpr Name name = kNames[index];
  Attributes attributes(construction);
  auto node = std::make_unique<Node>();
  node->kind = name.kind;
  node->is_group = name.is_group;
  node->process_set = attributes.int32("process_set_id");
  node->waits = attributes.boolean("wait");
  if (is_reduction(name.kind)) {
    node->reduce_op = attributes.int32("reduce_op");
    node->prescale = attributes.scale("prescale_factor", "prescale_bits");
    node->postscale = attributes.scale("postscale_factor", "postscale_bits");
  }
  if (name.kind == HVD_BROADCAST) {
    node->root_rank = attributes.int32("root_rank");
  }
  node->name = attributes.text("tensor_name");
  const View view = api.OpKernelConstruction_GetName(construction);
  std::string_view own(view.data, view.size);
  // A node's name is unique in its graph, even if a function is called several times. Outside of graphs all nodes of an
  // operation have the same name, and libhvd numbers the calls.
  if (node->name.empty() && !node->waits) {
    node->name = attributes.boolean("ignore_name_scope") ? own.substr(own.rfind('/') + 1) : own;
  }
  node->title = name.operation;
  if (!node->name.empty()) {
    node->title += " '" + node->name + "'";
  }
  return attributes.finish() ? node.release() : nullptr;
}

void delete_node(void* node) {
  delete static_cast<Node*>(node);
}

void add_attribute(OpBuilder* builder, const char* specification) {
  api.OpDefinitionBuilderAddAttr(builder, specification);
}

bool succeeded(const StatusHolder& status, const char* operation, std::string& error) {
  if (!status.is_ok()) {
    error = std::string(operation) + ": " + api.Message(status.get());
  }
  return status.is_ok();
}

bool define(const Name& name, std::string& error) {
  OpBuilder* const builder = api.NewOpDefinitionBuilder(name.operation);
  if (name.is_group) {
    add_attribute(builder, "T: list(" HVD_TF_TYPES ") >= 1");
    api.OpDefinitionBuilderAddInput(builder, "tensors: T");
    api.OpDefinitionBuilderAddOutput(builder, "outputs: T");
  } else {
    add_attribute(builder, "T: " HVD_TF_TYPES);
    api.OpDefinitionBuilderAddInput(builder, "tensor: T");
    if (name.kind == HVD_ALLTOALL) {
      api.OpDefinitionBuilderAddInput(builder, "splits: int32");
    }
    api.OpDefinitionBuilderAddOutput(builder, is_reduction(name.kind) ? "sum: T" : "output: T");
    if (name.kind == HVD_ALLTOALL) {
      api.OpDefinitionBuilderAddOutput(builder, "received_splits: int32");
    }
  }
  if (is_reduction(name.kind)) {
    for (const char* attribute : {"reduce_op: int = 1", "prescale_factor: float = 1.0", "postscale_factor: float = 1.0",
                                  "prescale_bits: int = 0", "postscale_bits: int = 0"}) {
      add_attribute(builder, attribute);
    }
  }
  if (name.kind == HVD_BROADCAST) {
    add_attribute(builder, "root_rank: int");
  }
  for (const char* attribute : {"ignore_name_scope: bool = false", "process_set_id: int = 0",
                                "tensor_name: string = ''", "wait: bool = false"}) {
    add_attribute(builder, attribute);
  }
  // A collective is marked stateful, because TensorFlow's optimizer would otherwise execute one with a constant input
  // once, in advance. It would also merge two with the same input, on this rank but maybe not on another.
  api.OpDefinitionBuilderSetIsStateful(builder, true);
  api.OpDefinitionBuilderSetShapeInferenceFunction(builder, shapes_of(name.kind));
  const StatusHolder status;
  api.RegisterOpDefinition(builder, status.get());
  return succeeded(status, name.operation, error);
}

template <std::size_t index>
bool register_collective(std::string& error) {
  constexpr Name name = kNames[index];
  if (!define(name, error)) {
    return false;
  }
  const StatusHolder status;
  api.RegisterKernelBuilder(
      name.operation, api.NewAsyncKernelBuilder(name.operation, "CPU", create_node<index>, Call::compute, delete_node),
      status.get());
  return succeeded(status, name.operation, error);
}

template <std::size_t... index>
bool register_collectives(std::index_sequence<index...>, std::string& error) {
  return (register_collective<index>(error) && ...);
}

// --- numbers of the job ----------------------------------------------------------------------------------------------

enum class Number { kSize, kRank, kLocalSize, kLocalRank, kIncluded };

struct NumberNode {
  std::int32_t process_set = 0;
};

struct NumberName {
  const char* operation;
  Number number;
  bool has_process_set;
};

constexpr NumberName kNumbers[] = {
    {"HorovodSize", Number::kSize, true},
    {"HorovodRank", Number::kRank, false},
    {"HorovodLocalSize", Number::kLocalSize, false},
    {"HorovodLocalRank", Number::kLocalRank, false},
    {"HorovodProcessSetIncluded", Number::kIncluded, true},
};

// Returns the members of a process set; empty if there is no such set.
std::vector<std::int32_t> members_of(std::int32_t process_set) {
  std::int32_t count = 0;
  std::vector<std::int32_t> ranks;
  while (hvd_process_set_ranks(nullptr, process_set, ranks.data(), static_cast<std::int32_t>(ranks.size()), &count) ==
         HVD_OK) {
    if (static_cast<std::size_t>(count) <= ranks.size()) {
      ranks.resize(static_cast<std::size_t>(count));
      return ranks;
    }
    ranks.resize(static_cast<std::size_t>(count));
  }
  return {};
}

// Returns the number that an operation asks for; negative if there is none.
std::int32_t value_of(Number number, std::int32_t process_set) {
  switch (number) {
    case Number::kSize: {
      const auto members = static_cast<std::int32_t>(members_of(process_set).size());
      return members == 0 ? -1 : members;
    }
    case Number::kRank:
      return hvd_rank(nullptr);
    case Number::kLocalSize:
      return hvd_local_size(nullptr);
    case Number::kLocalRank:
      return hvd_local_rank(nullptr);
    case Number::kIncluded:
      break;
  }
  const std::vector<std::int32_t> members = members_of(process_set);
  if (members.empty()) {
    return -1;
  }
  for (const std::int32_t member : members) {
    if (member == hvd_rank(nullptr)) {
      return 1;
    }
  }
  return 0;
}

template <std::size_t index>
void* create_number(Construction* construction) {
  Attributes attributes(construction);
  auto node = std::make_unique<NumberNode>();
  if constexpr (kNumbers[index].has_process_set) {
    node->process_set = attributes.int32("process_set_id");
  }
  return attributes.finish() ? node.release() : nullptr;
}

template <std::size_t index>
void compute_number(void* node, Context* context) {
  const std::int32_t process_set = static_cast<NumberNode*>(node)->process_set;
  const std::int32_t value = value_of(kNumbers[index].number, process_set);
  const StatusHolder status;
  if (value < 0) {
    const std::string text =
        std::string(kNumbers[index].operation) +
        (hvd_is_initialized() == 0 ? ": Horovod has not been initialized; use hvd.init()."
                                   : ": no process set has the number " + std::to_string(process_set));
    api.SetStatus(status.get(), hvd_is_initialized() == 0 ? kFailedPrecondition : kInvalidArgument, text.c_str());
    api.OpKernelContext_Failure(context, status.get());
    return;
  }
  Tensor* const output = api.AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof(value), status.get());
  if (!status.is_ok()) {
    api.OpKernelContext_Failure(context, status.get());
    return;
  }
  *static_cast<std::int32_t*>(api.TensorData(output)) = value;
  api.DeleteTensor(output);
}

void delete_number(void* node) {
  delete static_cast<NumberNode*>(node);
}

template <std::size_t index>
bool register_number(std::string& error) {
  constexpr NumberName name = kNumbers[index];
  OpBuilder* const builder = api.NewOpDefinitionBuilder(name.operation);
  api.OpDefinitionBuilderAddOutput(builder, "output: int32");
  if (name.has_process_set) {
    add_attribute(builder, "process_set_id: int = 0");
  }
  api.OpDefinitionBuilderSetIsStateful(builder, true);  // it changes when the process joins a job again
  api.OpDefinitionBuilderSetShapeInferenceFunction(builder, scalar_shape);
  const StatusHolder defined;
  api.RegisterOpDefinition(builder, defined.get());
  if (!succeeded(defined, name.operation, error)) {
    return false;
  }
  const StatusHolder status;
  api.RegisterKernelBuilder(
      name.operation,
      api.NewKernelBuilder(name.operation, "CPU", create_number<index>, compute_number<index>, delete_number),
      status.get());
  return succeeded(status, name.operation, error);
}

template <std::size_t... index>
bool register_numbers(std::index_sequence<index...>, std::string& error) {
  return (register_number<index>(error) && ...);
}

}  // namespace

bool register_operations(std::string& error) {
  return register_collectives(std::make_index_sequence<std::size(kNames)>(), error) &&
         register_numbers(std::make_index_sequence<std::size(kNumbers)>(), error);
}

}  // namespace hvd::front::tf
