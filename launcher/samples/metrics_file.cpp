#include "launcher/samples/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdio.h>

#include "runtime/base/fd.h"

namespace hvd::launch {

// The collector of node_exporter reads files of other users, so everybody may read this one.
Result<void> MetricsFile::write(std::string_view text) const {
  const std::string beside = path_ + "." + std::to_string(::getpid()) + ".new";
  const auto fail = [this, &beside] {
    const Error why = Error::from_errno("cannot write '" + path_ + "'");
    ::unlink(beside.c_str());
    return why;
  };
  Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.is_open() || !write_all(file.get(), text)) {
    return fail();
  }
  file.reset();
  if (::rename(beside.c_str(), path_.c_str()) != 0) {
    return fail();
  }
  return {};
}

}  // namespace hvd::launch
