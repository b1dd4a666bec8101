// The fake driver as a test program sees it: the library that CMake has built, and its functions for tests. Header
// only; a test program that includes it is compiled with FAKE_CUDA_LIBRARY, the library's path.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/dyn_lib.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace hvd::fake {

// Loaded once; a Device opened with its path uses the same.
class Control {
 public:
  explicit Control(const std::string& path) {
    auto opened = DynLib::open(path, DynLib::Scope::kStays);
    HVD_CHECK(opened.ok());
    file_ = std::move(opened).value();
    HVD_CHECK(file_.take("fake_cuda_count", count_).ok());
    HVD_CHECK(file_.take("fake_cuda_fail", fail_).ok());
    HVD_CHECK(file_.take("fake_cuda_set_capturing", set_capturing_).ok());
    HVD_CHECK(file_.take("fake_cuda_current_context", current_context_).ok());
    HVD_CHECK(file_.take("fake_cuda_mend", mend_).ok());
  }

  // See fake_cuda.h.
  [[nodiscard]] std::int64_t count(const char* what) const { return count_(what); }
  void fail(const char* what, int calls, int code = 0) const { fail_(what, calls, code); }
  void set_capturing(void* stream, bool is_capturing) const { set_capturing_(stream, is_capturing ? 1 : 0); }
  void mend(int ordinal) const { mend_(ordinal); }
  [[nodiscard]] void* current_context() const { return current_context_(); }

 private:
  DynLib file_;
  decltype(::fake_cuda_count)* count_ = nullptr;
  decltype(::fake_cuda_fail)* fail_ = nullptr;
  decltype(::fake_cuda_set_capturing)* set_capturing_ = nullptr;
  decltype(::fake_cuda_current_context)* current_context_ = nullptr;
  decltype(::fake_cuda_mend)* mend_ = nullptr;
};

#ifdef FAKE_CUDA_LIBRARY
inline const Control& cuda() {
  static const Control control(FAKE_CUDA_LIBRARY);
  return control;
}
#endif

}  // namespace hvd::fake
