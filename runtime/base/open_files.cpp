#include "runtime/base/open_files.h"

#include <sys/resource.h>

namespace hvd {

std::uint64_t open_files_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

Result<void> allow_open_files(std::uint64_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Error::from_errno("cannot tell the limit on open files (RLIMIT_NOFILE)");
  }
  if (needed <= limit.rlim_cur) {
    return {};
  }
  if (needed > limit.rlim_max) {
    return Error(Code::kResource, "about " + std::to_string(needed) + " open files are needed, and the limit is " +
                                      std::to_string(limit.rlim_max) + " (ulimit -Hn)");
  }
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Error::from_errno("cannot raise the limit on open files to " + std::to_string(limit.rlim_max));
  }
  return {};
}

}  // namespace hvd
