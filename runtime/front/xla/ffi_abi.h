// Declares the part of XLA's foreign function interface, version 0.1 to 0.3, that is used here. The declarations are
// our own, so one build serves every copy of XLA (jaxlib has one, TensorFlow another). They were checked against the
// libraries of jaxlib 0.5.3, 0.6.2, 0.8.2 and 0.10.2 and of TensorFlow 2.19.0 and 2.21.0. tests/unit compares the
// layout with the sizes that XLA states.
//
// XLA refuses a struct of arguments that is smaller than its own, and accepts a larger one. So the structs that we fill
// end with zeroed bytes that count in `size`, in place of the fields that a later version may add.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::xla {

constexpr int kMajor = 0;
constexpr int kOldestMinor = 1;  // the first with futures; before, functions could only block
constexpr int kNewestMinor = 3;

struct Extension {
  std::size_t size;
  int type;
  Extension* next;
};
constexpr int kMetadataExtension = 1;

struct Version {
  std::size_t size;
  Extension* extension;
  int major;
  int minor;
};

struct Metadata {
  std::size_t size;
  Version version;
  std::uint32_t traits;     // 0: none, so the call may not be captured into a CUDA graph, for example
  std::int64_t state_type;  // since 0.2; 0: no state
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum Type : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBf16 = 16,
};

struct Buffer {
  std::size_t size;
  Extension* extension;
  int type;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

// List describes the arguments or the results of a call.
struct List {
  std::size_t size;
  Extension* extension;
  std::int64_t count;
  int* types;
  void** values;
};
constexpr int kBufferValue = 1;

struct Span {  // not terminated by a zero
  const char* text;
  std::size_t length;
};

struct Scalar {
  int type;
  void* value;
};

struct Attributes {
  std::size_t size;
  Extension* extension;
  std::int64_t count;
  int* types;
  Span** names;
  void** values;
};
constexpr int kScalarAttribute = 3;
constexpr int kStringAttribute = 4;

struct Api;
struct XlaError;
struct Future;
struct Context;

constexpr int kExecuteStage = 3;

struct Frame {
  std::size_t size;
  Extension* extension;
  const Api* api;
  Context* context;
  int stage;
  List arguments;
  List results;
  Attributes attributes;
  Future* future;  // out: becomes available when the results are written
};

using Handler = XlaError*(Frame*);

// The status codes of Abseil that are used here.
enum StatusCode : int {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
};

struct ErrorCreate {
  std::size_t size;
  Extension* extension;
  const char* message;
  int code;
  std::byte reserved[64];
};

struct ErrorGetMessage {
  std::size_t size;
  Extension* extension;
  XlaError* error;
  const char* message;  // out
  std::byte reserved[64];
};

struct ErrorDestroy {
  std::size_t size;
  Extension* extension;
  XlaError* error;
  std::byte reserved[64];
};

struct FutureCreate {
  std::size_t size;
  Extension* extension;
  Future* future;  // out
  std::byte reserved[64];
};

struct FutureSetAvailable {
  std::size_t size;
  Extension* extension;
  Future* future;
  std::byte reserved[64];
};

struct FutureSetError {
  std::size_t size;
  Extension* extension;
  Future* future;
  XlaError* error;  // ownership passes to XLA
  std::byte reserved[64];
};

struct DeviceOrdinalGet {
  std::size_t size;
  Extension* extension;
  Context* context;
  std::int32_t ordinal;  // out
  std::byte reserved[64];
};

struct StreamGet {
  std::size_t size;
  Extension* extension;
  Context* context;
  void* stream;  // out: a CUstream
  std::byte reserved[64];
};

struct RunIdGet {
  std::size_t size;
  Extension* extension;
  Context* context;
  std::int64_t run_id;  // out
  std::byte reserved[64];
};

struct HandlerRegister {
  std::size_t size;
  Extension* extension;
  Span name;
  Span platform;
  Handler* instantiate;
  Handler* prepare;
  Handler* initialize;
  Handler* execute;
  std::uint32_t traits;
  std::byte reserved[64];
};

struct Api {
  std::size_t size;  // too small in version 0.1
  Extension* extension;
  Version version;
  const void* internal;
  XlaError* (*error_create)(ErrorCreate*);
  void (*error_get_message)(ErrorGetMessage*);
  void (*error_destroy)(ErrorDestroy*);
  XlaError* (*handler_register)(HandlerRegister*);
  XlaError* (*stream_get)(StreamGet*);
  void* type_register;
  void* execution_context_get;
  void* state_set;
  void* state_get;
  void* device_memory_allocate;
  void* device_memory_free;
  void* thread_pool_schedule;
  void* thread_pool_num_threads;
  XlaError* (*future_create)(FutureCreate*);
  XlaError* (*future_set_available)(FutureSetAvailable*);
  XlaError* (*future_set_error)(FutureSetError*);
  XlaError* (*run_id_get)(RunIdGet*);                  // likewise
  XlaError* (*device_ordinal_get)(DeviceOrdinalGet*);  // always there since version 0.2
};

static_assert(sizeof(Version) == 24 && sizeof(List) == 40 && sizeof(Attributes) == 48 && sizeof(Buffer) == 48);
static_assert(sizeof(Frame) == 176 && offsetof(Frame, future) == 168);
static_assert(offsetof(Api, future_set_error) == 168 && sizeof(Api) == 192);

// Makes the arguments of a call, with the size filled in and all else zero.
template <typename T>
T arguments() {
  T made{};
  made.size = sizeof(T);
  return made;
}

}  // namespace hvd::xla
