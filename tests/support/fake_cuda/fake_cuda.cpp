#include "tests/support/fake_cuda/fake_cuda.h"

#include "tests/support/fake_cuda/driver_state.h"
#include "tests/support/fake_cuda/fake_faults.h"

using hvd::fake::context_at;
using hvd::fake::current_contexts;
using hvd::fake::registry;

extern "C" {

std::int64_t fake_cuda_count(const char* what) {
  return hvd::fake::calls_of(what);
}
void fake_cuda_fail(const char* what, int calls, int code) {
  hvd::fake::fail_at(what, calls, code);
}
void fake_cuda_set_capturing(void* stream, int is_capturing) {
  const std::lock_guard lock(registry().mutex);
  const auto known = registry().streams.find(static_cast<CUstream>(stream));
  if (known != registry().streams.end()) {
    const bool was_capturing = known->second->is_capturing.exchange(is_capturing != 0);
    registry().captures += (is_capturing != 0 ? 1 : 0) - (was_capturing ? 1 : 0);
  }
}
void fake_cuda_wait_for_device() {
  if (!current_contexts().empty() && current_contexts().back() != nullptr) {
    hvd::fake::wait_for_device(current_contexts().back()->context);
  }
}
void* fake_cuda_current_context() {
  return current_contexts().empty() ? nullptr : current_contexts().back();
}
void fake_cuda_mend(int ordinal) {
  if (CUcontext context = context_at(ordinal); context != nullptr) {
    context->context.lost = 0;
  }
}

}  // extern "C"
