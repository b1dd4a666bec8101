#include "runtime/base/replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdio.h>

#include "runtime/base/fd.h"

namespace hvd {

Result<void> replace_file(const std::string& path, std::string_view text, std::optional<mode_t> mode) {
  const std::string beside = path + "." + std::to_string(::getpid()) + ".part";
  ::unlink(beside.c_str());  // one that is left over may have another mode
  const Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode.value_or(0666)));
  if (!file.is_open()) {
    return Error::from_errno("cannot write " + path);
  }
  // The umask may have taken rights that the caller wants.
  if ((mode && ::fchmod(file.get(), *mode) != 0) || !write_all(file.get(), text) ||
      ::rename(beside.c_str(), path.c_str()) != 0) {
    const Error why = Error::from_errno("cannot write " + path);
    ::unlink(beside.c_str());
    return why;
  }
  return {};
}

}  // namespace hvd
