#include "runtime/base/process_mark.h"

#include <pthread.h>

#include "runtime/base/check.h"

namespace hvd {

std::uint64_t ProcessMark::forks = 0;

ProcessMark::ProcessMark() : mark_(forks) {
  static const int failed = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  HVD_CHECK(failed == 0);  // ENOMEM, in a process that has just begun
}

}  // namespace hvd
