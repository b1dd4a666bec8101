#include "launcher/service/file_follower.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace hvd::launch {
namespace {

constexpr std::size_t kChunk = 256U << 10U;

}  // namespace

Result<void> FileFollower::copy_new(int out) {
  if (!file_.is_open()) {
    HVD_TRY(open());
  }
  while (file_.is_open()) {
    const bool was_replaced = is_replaced();
    HVD_TRY(copy_rest(out));  // of an earlier file too, to which nothing is added once it is replaced
    if (!was_replaced) {
      break;
    }
    HVD_TRY(open());
  }
  return {};
}

Result<void> FileFollower::open() {
  Fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.is_open()) {
    return errno == ENOENT ? Result<void>() : Result<void>(Error::from_errno("cannot read " + path_));
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error(Code::kInvalid, path_ + " is no file that could be shown");
  }
  file_ = std::move(file);
  at_ = 0;
  return {};
}

// A file that was only removed is not replaced.
bool FileFollower::is_replaced() const {
  struct stat own{};
  struct stat there{};
  return ::fstat(file_.get(), &own) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         (own.st_ino != there.st_ino || own.st_dev != there.st_dev);
}

Result<void> FileFollower::copy_rest(int out) {
  struct stat info{};
  if (::fstat(file_.get(), &info) == 0 && static_cast<std::uint64_t>(info.st_size) < at_) {
    at_ = 0;
  }
  std::vector<char> buffer(kChunk);
  for (;;) {
    const ssize_t got = ::pread(file_.get(), buffer.data(), buffer.size(), static_cast<off_t>(at_));
    if (got < 0 && errno != EINTR) {
      return Error::from_errno("cannot read " + path_);
    }
    if (got == 0) {
      return {};
    }
    if (got > 0) {
      if (!write_all(out, {buffer.data(), static_cast<std::size_t>(got)})) {
        return Error::from_errno("cannot write what stands in the file");
      }
      at_ += static_cast<std::uint64_t>(got);
    }
  }
}

}  // namespace hvd::launch
