// Declares the part of TensorFlow's C interface for operations and kernels that is used here. The declarations are our
// own, so TensorFlow is not needed to compile, and one library serves all its versions. They were checked against the
// headers and libraries of TensorFlow 2.16.1, 2.19.0 and 2.21.0. The functions are looked up when the library is
// loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hvd::front::tf {

struct Status;
struct Tensor;
struct OpBuilder;
struct KernelBuilder;
struct ShapeContext;
struct ShapeHandle;
struct Construction;
struct Context;

struct View {
  const char* data;
  std::size_t size;
};

using ShapeFunction = void (*)(ShapeContext*, Status*);
using CreateFunction = void* (*)(Construction*);
using ComputeFunction = void (*)(void* kernel, Context*);
using AsyncComputeFunction = void (*)(void* kernel, Context*, void* done);
using DeleteFunction = void (*)(void* kernel);

// The values of TF_DataType that are used here.
enum : int {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kHalf = 19
};

// The values of TF_Code that are used here.
enum : int { kOk = 0, kUnknown = 2, kInvalidArgument = 3, kFailedPrecondition = 9, kInternal = 13 };

// X(result, name, (parameters)) stands for the function TF_<name>.
#define HVD_TF_FUNCTIONS(X)                                                                                           \
  X(Status*, NewStatus, ())                                                                                           \
  X(void, DeleteStatus, (Status*))                                                                                    \
  X(void, SetStatus, (Status*, int, const char*))                                                                     \
  X(int, GetCode, (const Status*))                                                                                    \
  X(const char*, Message, (const Status*))                                                                            \
  X(OpBuilder*, NewOpDefinitionBuilder, (const char*))                                                                \
  X(void, OpDefinitionBuilderAddAttr, (OpBuilder*, const char*))                                                      \
  X(void, OpDefinitionBuilderAddInput, (OpBuilder*, const char*))                                                     \
  X(void, OpDefinitionBuilderAddOutput, (OpBuilder*, const char*))                                                    \
  X(void, OpDefinitionBuilderSetIsStateful, (OpBuilder*, bool))                                                       \
  X(void, OpDefinitionBuilderSetShapeInferenceFunction, (OpBuilder*, ShapeFunction))                                  \
  X(void, RegisterOpDefinition, (OpBuilder*, Status*))                                                                \
  X(std::int64_t, ShapeInferenceContextNumInputs, (ShapeContext*))                                                    \
  X(ShapeHandle*, NewShapeHandle, ())                                                                                 \
  X(void, DeleteShapeHandle, (ShapeHandle*))                                                                          \
  X(void, ShapeInferenceContextGetInput, (ShapeContext*, int, ShapeHandle*, Status*))                                 \
  X(void, ShapeInferenceContextSetOutput, (ShapeContext*, int, ShapeHandle*, Status*))                                \
  X(std::int64_t, ShapeInferenceContextRank, (ShapeContext*, ShapeHandle*))                                           \
  X(int, ShapeInferenceContextRankKnown, (ShapeContext*, ShapeHandle*))                                               \
  X(ShapeHandle*, ShapeInferenceContextScalar, (ShapeContext*))                                                       \
  X(ShapeHandle*, ShapeInferenceContextVectorFromSize, (ShapeContext*, std::size_t))                                  \
  X(void, ShapeInferenceContextSubshape,                                                                              \
    (ShapeContext*, ShapeHandle*, std::int64_t, std::int64_t, ShapeHandle*, Status*))                                 \
  X(void, ShapeInferenceContextConcatenateShapes, (ShapeContext*, ShapeHandle*, ShapeHandle*, ShapeHandle*, Status*)) \
  X(KernelBuilder*, NewKernelBuilder, (const char*, const char*, CreateFunction, ComputeFunction, DeleteFunction))    \
  X(KernelBuilder*, NewAsyncKernelBuilder,                                                                            \
    (const char*, const char*, CreateFunction, AsyncComputeFunction, DeleteFunction))                                 \
  X(void, RegisterKernelBuilder, (const char*, KernelBuilder*, Status*))                                              \
  X(void, RunAsyncOpKernelDoneCallback, (void*))                                                                      \
  X(void, OpKernelConstruction_GetAttrInt32, (Construction*, const char*, std::int32_t*, Status*))                    \
  X(void, OpKernelConstruction_GetAttrInt64, (Construction*, const char*, std::int64_t*, Status*))                    \
  X(void, OpKernelConstruction_GetAttrFloat, (Construction*, const char*, float*, Status*))                           \
  X(void, OpKernelConstruction_GetAttrBool, (Construction*, const char*, unsigned char*, Status*))                    \
  X(void, OpKernelConstruction_GetAttrSize, (Construction*, const char*, std::int32_t*, std::int32_t*, Status*))      \
  X(void, OpKernelConstruction_GetAttrString, (Construction*, const char*, char*, std::size_t, Status*))              \
  X(View, OpKernelConstruction_GetName, (Construction*))                                                              \
  X(void, OpKernelConstruction_Failure, (Construction*, Status*))                                                     \
  X(int, NumInputs, (Context*))                                                                                       \
  X(void, GetInput, (Context*, int, Tensor**, Status*))                                                               \
  X(Tensor*, AllocateOutput, (Context*, int, int, const std::int64_t*, int, std::size_t, Status*))                    \
  X(Tensor*, ForwardInputOrAllocateOutput, (Context*, const int*, int, int, const std::int64_t*, int, int*, Status*)) \
  X(void, OpKernelContext_Failure, (Context*, Status*))                                                               \
  X(std::int64_t, GetIterId, (Context*))                                                                              \
  X(std::int64_t, GetStepId, (Context*))                                                                              \
  X(int, TensorType, (const Tensor*))                                                                                 \
  X(int, NumDims, (const Tensor*))                                                                                    \
  X(std::int64_t, Dim, (const Tensor*, int))                                                                          \
  X(std::size_t, TensorByteSize, (const Tensor*))                                                                     \
  X(void*, TensorData, (const Tensor*))                                                                               \
  X(void, DeleteTensor, (Tensor*))

// Holds the functions that were found.
struct Api {
#define HVD_TF_MEMBER(result, name, parameters) result(*name) parameters;
  HVD_TF_FUNCTIONS(HVD_TF_MEMBER)
#undef HVD_TF_MEMBER
};

// Valid once find_api() has returned true.
extern Api api;

// Finds the functions in the TensorFlow that this process has loaded. On failure `error` says what to do.
bool find_api(std::string& error);

// Owns a Status.
class StatusHolder {
 public:
  StatusHolder() : status_(api.NewStatus()) {}
  StatusHolder(const StatusHolder&) = delete;
  StatusHolder& operator=(const StatusHolder&) = delete;
  ~StatusHolder() { api.DeleteStatus(status_); }
  Status* get() const { return status_; }
  bool is_ok() const { return api.GetCode(status_) == kOk; }

 private:
  Status* status_;
};

}  // namespace hvd::front::tf
