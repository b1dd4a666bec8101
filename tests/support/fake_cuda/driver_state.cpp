#include "tests/support/fake_cuda/driver_state.h"

#include <utility>

#include "tests/support/fake_cuda/fake_faults.h"

namespace hvd::fake {
namespace {

// As a real device does that runs into an error: nothing after it can be trusted.
void lose(Context& context, int code) {
  int none = 0;
  context.lost.compare_exchange_strong(none, code);
}

}  // namespace

Registry& registry() {
  static auto* all = new Registry;
  return *all;
}

std::vector<CUcontext>& current_contexts() {
  thread_local std::vector<CUcontext> contexts;
  return contexts;
}

CUstreamCaptureMode& capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult begin(const char* function) {
  const int code = count_call(function);
  if (code != 0) {
    return static_cast<CUresult>(code);
  }
  const std::lock_guard lock(registry().mutex);
  return registry().is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult begin(const char* function, Context*& context) {
  if (const CUresult code = begin(function); code != CUDA_SUCCESS) {
    return code;
  }
  if (current_contexts().empty() || current_contexts().back() == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  context = &current_contexts().back()->context;
  if (context->retained.load() == 0) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return static_cast<CUresult>(context->lost.load());
}

CUresult begin_unsafe(const char* function, Context*& context) {
  if (const CUresult code = begin(function, context); code != CUDA_SUCCESS) {
    return code;
  }
  if (capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL && registry().captures.load() > 0) {
    static_cast<void>(count_call("spoiled capture"));
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<CUstream_st> find_stream(CUstream handle, const Context& context) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (handle == nullptr) {
    auto& own = all.default_streams[static_cast<std::size_t>(context.ordinal)];
    if (own == nullptr) {
      own = std::make_shared<CUstream_st>(all.contexts[static_cast<std::size_t>(context.ordinal)]->context);
      own->start(all.delay);
    }
    return own;
  }
  const auto known = all.streams.find(handle);
  return known == all.streams.end() || &known->second->context != &context ? nullptr : known->second;
}

std::shared_ptr<CUevent_st> find_event(CUevent handle) {
  const std::lock_guard lock(registry().mutex);
  const auto known = registry().events.find(handle);
  return known == registry().events.end() ? nullptr : known->second;
}

std::shared_ptr<Mark> last_of(const CUevent_st& event) {
  const std::lock_guard lock(registry().mutex);
  return event.last;
}

void push_work(const std::shared_ptr<CUstream_st>& stream, const char* what, std::function<bool()> work) {
  Context& context = stream->context;
  stream->push([&context, what, work = std::move(work)] {
    if (context.lost.load() != 0) {
      return;
    }
    if (const int code = count_call(what); code != 0) {
      lose(context, code);
    } else if (!work()) {
      lose(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
  });
}

void wait_for_device(const Context& context) {
  std::vector<std::shared_ptr<CUstream_st>> all;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [handle, stream] : registry().streams) {
      all.push_back(stream);
    }
    for (const auto& stream : registry().default_streams) {
      all.push_back(stream);
    }
  }
  for (const auto& stream : all) {
    if (stream != nullptr && &stream->context == &context) {
      stream->wait_until_idle();
    }
  }
}

CUcontext context_at(CUdevice device) {
  const std::lock_guard lock(registry().mutex);
  const auto index = static_cast<std::size_t>(device);
  return device >= 0 && index < registry().contexts.size() ? registry().contexts[index].get() : nullptr;
}

}  // namespace hvd::fake
