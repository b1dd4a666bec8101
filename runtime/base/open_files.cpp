#include "runtime/base/open_files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>

#include <dirent.h>

namespace hvd {

std::uint64_t open_files_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

std::uint64_t count_open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  std::uint64_t count = 0;
  while (folder != nullptr) {
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) {
      break;
    }
    count += entry->d_name[0] != '.' ? 1U : 0U;
  }
  return count;
}

void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The kernel gives the lowest free number, so this fills the three in order. Children inherit them like any others.
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) {
      return;
    }
  }
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
