// The fake NCCL as a test program sees it, which is compiled with FAKE_NCCL_LIBRARY, its path. Header only.
#pragma once

#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/dyn_lib.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace hvd::fake {

// Loaded once: from then on it is this process's NCCL.
class NcclControl {
 public:
  NcclControl() {
    auto opened = DynLib::open(FAKE_NCCL_LIBRARY, DynLib::Scope::kStays);
    HVD_CHECK(opened.ok());
    file_ = std::move(opened).value();
    HVD_CHECK(file_.take("fake_nccl_count", count_).ok());
    HVD_CHECK(file_.take("fake_nccl_fail", fail_).ok());
    HVD_CHECK(file_.take("fake_nccl_hang", hang_).ok());
    HVD_CHECK(file_.take("fake_nccl_release", release_).ok());
    HVD_CHECK(file_.take("fake_nccl_set_version", set_version_).ok());
    HVD_CHECK(file_.take("fake_nccl_set_silent", set_silent_).ok());
    HVD_CHECK(file_.take("fake_nccl_set_delay_us", set_delay_us_).ok());
  }

  // See fake_nccl.h.
  [[nodiscard]] std::int64_t count(const char* what) const { return count_(what); }
  void fail(const char* function, int calls, int code) const { fail_(function, calls, code); }
  void hang(const char* function, int begins, int rank) const { hang_(function, begins, rank); }
  void release() const { release_(); }
  void set_version(int version) const { set_version_(version); }
  void set_silent(bool is_silent) const { set_silent_(is_silent ? 1 : 0); }
  void set_delay_us(int delay_us) const { set_delay_us_(delay_us); }

 private:
  DynLib file_;
  decltype(::fake_nccl_count)* count_ = nullptr;
  decltype(::fake_nccl_fail)* fail_ = nullptr;
  decltype(::fake_nccl_hang)* hang_ = nullptr;
  decltype(::fake_nccl_release)* release_ = nullptr;
  decltype(::fake_nccl_set_version)* set_version_ = nullptr;
  decltype(::fake_nccl_set_silent)* set_silent_ = nullptr;
  decltype(::fake_nccl_set_delay_us)* set_delay_us_ = nullptr;
};

inline const NcclControl& nccl() {
  static const NcclControl control;
  return control;
}

}  // namespace hvd::fake
