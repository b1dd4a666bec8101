// The state of the fake driver, and what each of its functions begins with. The driver's functions themselves are in
// api_*.cpp, one file for each kind of thing that they are about.
//
// Thread: any.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <cuda.h>

#include "tests/support/fake_cuda/fake_stream.h"

// A context is the driver's pointer to ours.
struct CUctx_st {
  hvd::fake::Context context;
};

namespace hvd::fake {

// Everything that has a handle. Never destroyed: streams may run until the process ends.
struct Registry {
  std::mutex mutex;
  bool is_initialized = false;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::vector<std::shared_ptr<CUstream_st>> default_streams;
  std::map<CUstream, std::shared_ptr<CUstream_st>> streams;
  std::map<CUevent, std::shared_ptr<CUevent_st>> events;
  std::set<CUmodule> modules;
  int first_uuid = 0;
  std::chrono::microseconds delay{0};
  std::atomic<int> captures{0};
};
Registry& registry();

// Both belong to the calling thread, as CUDA has them.
std::vector<CUcontext>& current_contexts();
CUstreamCaptureMode& capture_mode();

// Counts the call; whether it may go on.
CUresult begin(const char* function);
// The same for what needs a context, which must not be lost.
CUresult begin(const char* function, Context*& context);
// The same for what no thread of the usual mode may do while a graph is captured anywhere in the process.
CUresult begin_unsafe(const char* function, Context*& context);

// Null: no such stream of this context.
std::shared_ptr<CUstream_st> find_stream(CUstream handle, const Context& context);
// Null: no such event.
std::shared_ptr<CUevent_st> find_event(CUevent handle);
// Null: it was never recorded.
std::shared_ptr<Mark> last_of(const CUevent_st& event);
// Null: no such device.
CUcontext context_at(CUdevice device);

// Puts the work on the stream; unless the context is lost by then. `what` is counted, and may be asked to fail. Work
// that returns false loses the context.
void push_work(const std::shared_ptr<CUstream_st>& stream, const char* what, std::function<bool()> work);
void wait_for_device(const Context& context);

}  // namespace hvd::fake
