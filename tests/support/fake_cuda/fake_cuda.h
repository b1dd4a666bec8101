// What tests ask of the fake CUDA driver, beside the driver's own functions: libcuda.so.1 with "devices" that are
// memory and threads of the host. Each stream is a thread with a queue, so that a wait for an event that is forgotten
// is a race that the sanitizers see. It checks what a real driver may let pass: a context that is not current, a
// handle that was destroyed, memory that a kernel may not touch.
//
// Take the functions by dlsym from the library that is loaded. Settings by environment, read at cuInit:
//   FAKE_CUDA_DEVICES=2      how many devices there are (default 1)
//   FAKE_CUDA_FIRST_UUID=4   the first device's UUID ends so, the next one's in one more (default 0): processes with
//                            the same see the same devices
//   FAKE_CUDA_FAIL=cuMemAlloc:3,cuLaunchKernel:1:700   the 3rd call from now on fails with CUDA_ERROR_OUT_OF_MEMORY
//                            (for an allocation; else CUDA_ERROR_UNKNOWN), the 1st with 700. Of what streams run,
//                            "kernel" and "copy" may fail so too: then the device's context is lost
//   FAKE_CUDA_DELAY_US=100   each thing on a stream waits so long before it runs (default 0)
#pragma once

#include <cstdint>

extern "C" {

// Calls of a function of the driver ("cuMemAlloc", without _v2) since the start; and of what streams ran: "kernel",
// "copy", "fill", "host function". "pageable copy": copies from or to memory of the host that is not pinned. "full
// stream": calls that blocked until a stream, which has room for 1024 things, had room again.
// "live memory", "live pinned memory", "live stream", "live event": what was made and not yet destroyed.
std::int64_t fake_cuda_count(const char* what);

// As FAKE_CUDA_FAIL, from now on: after `calls` - 1 that succeed, one fails. 0: none does.
void fake_cuda_fail(const char* what, int calls, int code);

// Whether a graph is captured from it, as PyTorch does it: calls of threads of the usual capture mode that look at the
// device or make memory fail meanwhile with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and are counted: "spoiled capture".
void fake_cuda_set_capturing(void* stream, int is_capturing);

// Until the device whose context is current has nothing more to do. For the fake NCCL.
void fake_cuda_wait_for_device();

// The context that is current in this thread, or null.
void* fake_cuda_current_context();

// Forgets that the context of the device was lost.
void fake_cuda_mend(int ordinal);
}
