#include "runtime/front/tensorflow/call.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/front/step_watch.h"

namespace hvd::front::tf {

namespace {

// TensorFlow gives a step the number of an earlier one.
StepWatch& watched_steps() {
  return watch_of_steps(StepWatch::Numbers::kUsedAgain);
}

// Iterations of a loop may run at the same time (TensorFlow's usual limit is 10), so each needs a name of its own. The
// names are used again, so that libhvd knows them after the first round.
constexpr std::int64_t kIterationNames = 64;

std::int32_t dtype_of(int type) {
  switch (type) {
    case kFloat:
      return HVD_FLOAT32;
    case kDouble:
      return HVD_FLOAT64;
    case kInt32:
      return HVD_INT32;
    case kUint8:
      return HVD_UINT8;
    case kInt16:
      return HVD_INT16;
    case kInt8:
      return HVD_INT8;
    case kInt64:
      return HVD_INT64;
    case kBool:
      return HVD_BOOL;
    case kBfloat16:
      return HVD_BFLOAT16;
    case kUint16:
      return HVD_UINT16;
    case kHalf:
      return HVD_FLOAT16;
    default:
      return -1;
  }
}

// Maps to Horovod's three kinds of error: ranks disagree, an argument is wrong, or the job has a problem.
int code_of(hvd_status status) {
  switch (status) {
    case HVD_INVALID:
      return kInvalidArgument;
    case HVD_MISMATCH:
      return kFailedPrecondition;
    case HVD_INTERNAL:
      return kInternal;
    default:
      return kUnknown;
  }
}

bool has_shape_of_input(std::int32_t kind) {
  return kind == HVD_ALLREDUCE || kind == HVD_BROADCAST;
}

}  // namespace

void Call::compute(void* node, Context* context, void* done) {
  auto call = std::make_unique<Call>(*static_cast<const Node*>(node), context, done);
  if (!call->prepare()) {
    call->run();
  } else if (call->node_.waits || !call->done_.outlives_kernel()) {
    call->execute_here();
    call->run();
  } else {
    start(std::move(call));
  }
}

Call::Call(const Node& node, Context* context, void* done)
    : node_(node), context_(context), done_(done), step_(api.GetStepId(context)) {}

Call::~Call() {
  for (const Part& part : parts_) {
    if (part.output != nullptr) {
      api.DeleteTensor(part.output);
    }
  }
}

bool Call::prepare() {
  const bool is_alltoall = node_.kind == HVD_ALLTOALL;
  parts_.resize(is_alltoall ? 1 : static_cast<std::size_t>(api.NumInputs(context_)));
  handles_.assign(parts_.size(), 0);
  std::string name = node_.name;
  if (const std::int64_t iteration = node_.waits ? 0 : api.GetIterId(context_); iteration != 0) {
    name += "#" + std::to_string(iteration % kIterationNames);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool has_number = node_.is_group && !name.empty();
    if (!prepare_part(parts_[i], static_cast<int>(i), has_number ? name + "_" + std::to_string(i) : name)) {
      return false;
    }
  }
  return !is_alltoall || read_splits();
}

bool Call::prepare_part(Part& part, int index, const std::string& name) {
  const StatusHolder status;
  Tensor* input = nullptr;
  api.GetInput(context_, index, &input, status.get());
  if (!status.is_ok()) {
    fail(api.GetCode(status.get()), api.Message(status.get()));
    return false;
  }
  part.type = api.TensorType(input);
  const int ndim = api.NumDims(input);
  part.op.dtype = dtype_of(part.type);
  part.op.input = api.TensorData(input);  // the context keeps it alive
  for (int i = 0; i < std::min(ndim, HVD_MAX_DIMS); ++i) {
    part.dims[static_cast<std::size_t>(i)] = api.Dim(input, i);
  }
  // This reference is given up, because a second one would keep TensorFlow from using the input's memory for the
  // output.
  api.DeleteTensor(input);
  if (part.op.dtype < 0 || ndim > HVD_MAX_DIMS) {
    fail(kInvalidArgument, ndim > HVD_MAX_DIMS ? "a tensor of more than 16 dimensions" : "a type that does not travel");
    return false;
  }
  if (has_shape_of_input(node_.kind)) {
    int forwarded = -1;
    part.output =
        api.ForwardInputOrAllocateOutput(context_, &index, 1, index, part.dims.data(), ndim, &forwarded, status.get());
    if (!status.is_ok()) {
      fail(api.GetCode(status.get()), api.Message(status.get()));
      return false;
    }
    part.op.output = api.TensorData(part.output);
  }
  part.name = name;
  part.op.kind = node_.kind;
  part.op.reduce_op = node_.reduce_op;
  part.op.root_rank = node_.root_rank;
  part.op.process_set = node_.process_set;
  part.op.prescale = node_.prescale;
  part.op.postscale = node_.postscale;
  part.op.ndim = ndim;
  part.op.shape = part.dims.data();
  part.op.name = part.name.empty() ? nullptr : part.name.c_str();
  return true;
}

bool Call::read_splits() {
  const StatusHolder status;
  Tensor* splits = nullptr;
  api.GetInput(context_, 1, &splits, status.get());
  if (!status.is_ok()) {
    fail(api.GetCode(status.get()), api.Message(status.get()));
    return false;
  }
  splits_.resize(api.TensorByteSize(splits) / sizeof(std::int32_t));
  if (!splits_.empty()) {
    std::memcpy(splits_.data(), api.TensorData(splits), splits_.size() * sizeof(std::int32_t));
  }
  const int ndim = api.NumDims(splits);
  api.DeleteTensor(splits);
  if (ndim != 1) {
    fail(kInvalidArgument, "splits must have one dimension, not " + std::to_string(ndim));
    return false;
  }
  hvd_op& op = parts_[0].op;
  op.splits = splits_.empty() ? nullptr : splits_.data();
  op.split_count = static_cast<std::int32_t>(splits_.size());
  return true;
}

hvd_status Call::enqueue() {
  if (!node_.is_group) {
    return hvd_enqueue(nullptr, &parts_[0].op, handles_.data());
  }
  std::vector<const hvd_op*> ops;
  ops.reserve(parts_.size());
  for (const Part& part : parts_) {
    ops.push_back(&part.op);
  }
  return hvd_enqueue_group(nullptr, ops.data(), static_cast<std::int32_t>(ops.size()), handles_.data());
}

// Executes in the calling thread. This is faster: the caller waits anyway, and no other thread has to wake up.
void Call::execute_here() {
  if (!node_.is_group) {
    status_ = hvd_execute(nullptr, &parts_[0].op, handles_.data());
  } else {
    status_ = enqueue();
    for (const std::int64_t handle : handles_) {
      if (handle != 0 && status_ == HVD_OK) {
        status_ = hvd_wait(nullptr, handle);
      }
    }
  }
  if (status_ != HVD_OK) {
    fail_as_library_says(status_, hvd_last_error());
  }
}

void Call::start(std::unique_ptr<Call> call) {
  const hvd_status started = call->enqueue();
  if (started != HVD_OK) {
    std::fill(call->handles_.begin(), call->handles_.end(), 0);  // nothing was started
    call->fail_as_library_says(started, hvd_last_error());
    call->run();
    return;
  }
  watched_steps().begin(call->step_);
  call->is_watched_ = true;
  // The callback owns the call from here on. It may have run and deleted it before hvd_on_all_done returns.
  const std::vector<std::int64_t> handles = call->handles_;
  Call* const given = call.release();
  const hvd_status status =
      hvd_on_all_done(nullptr, handles.data(), static_cast<std::int32_t>(handles.size()), &Call::on_done, given);
  if (status != HVD_OK) {  // the job was left meanwhile, and the callback will not come
    call.reset(given);
    call->fail_as_library_says(status, hvd_last_error());
    call->run();
  }
}

void Call::on_done(void* call, hvd_status status, const char* text) {
  auto* const self = static_cast<Call*>(call);
  self->status_ = status;
  if (status != HVD_OK) {
    self->fail_as_library_says(status, text);
  }
  CompletionPool::shared().post(std::unique_ptr<Job>(self));
}

void Call::run() noexcept {
  if (code_ == kOk && !has_shape_of_input(node_.kind)) {
    for (std::size_t i = 0; i < parts_.size() && hand_out(i); ++i) {
    }
  }
  for (const std::int64_t handle : handles_) {
    if (handle != 0) {
      hvd_release(nullptr, handle);
    }
  }
  if (code_ != kOk) {
    const StatusHolder status;
    api.SetStatus(status.get(), code_, text_.c_str());
    api.OpKernelContext_Failure(context_, status.get());
  }
  if (is_watched_) {
    watched_steps().end(step_, status_ == HVD_MISMATCH || status_ == HVD_INVALID);
  }
  for (Part& part : parts_) {
    if (part.output != nullptr) {
      api.DeleteTensor(part.output);
      part.output = nullptr;
    }
  }
  done_.run();
}

// Copies a result that libhvd has allocated to an output of TensorFlow.
bool Call::hand_out(std::size_t index) {
  hvd_output result = HVD_OUTPUT_INIT;
  // The callback comes slightly before the result is available.
  status_ = hvd_wait(nullptr, handles_[index]);
  if (status_ == HVD_OK) {
    status_ = hvd_result(nullptr, handles_[index], &result);
  }
  if (status_ != HVD_OK) {
    fail_as_library_says(status_, hvd_last_error());
    return false;
  }
  const StatusHolder status;
  Tensor* const output = api.AllocateOutput(context_, static_cast<int>(index), parts_[index].type, result.shape,
                                            result.ndim, static_cast<std::size_t>(result.size_bytes), status.get());
  if (!status.is_ok()) {
    fail(api.GetCode(status.get()), api.Message(status.get()));
    return false;
  }
  status_ = result.size_bytes == 0
                ? HVD_OK
                : hvd_fetch(nullptr, handles_[index], api.TensorData(output), result.size_bytes, nullptr);
  api.DeleteTensor(output);
  if (status_ != HVD_OK) {
    fail_as_library_says(status_, hvd_last_error());
    return false;
  }
  if (node_.kind == HVD_ALLTOALL) {
    const std::int64_t count = result.received_count;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::int32_t);
    Tensor* const received = api.AllocateOutput(context_, 1, kInt32, &count, 1, bytes, status.get());
    if (!status.is_ok()) {
      fail(api.GetCode(status.get()), api.Message(status.get()));
      return false;
    }
    std::memcpy(api.TensorData(received), result.received_splits, bytes);
    api.DeleteTensor(received);
  }
  return true;
}

void Call::fail(int code, const std::string& text) {
  code_ = code;
  text_ = node_.title + ": " + text;
}

void Call::fail_as_library_says(hvd_status status, const char* text) {
  fail(code_of(status), text == nullptr ? "failed" : text);
}

}  // namespace hvd::front::tf
