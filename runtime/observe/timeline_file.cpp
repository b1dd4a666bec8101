#include "runtime/observe/timeline_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <utility>

namespace hvd {
namespace {

constexpr mode_t kReadableByAll = 0644;
constexpr int kMostFiles = 100'000;
constexpr auto kFuse = 0x65735546;  // statfs(2)

int set_lock(const Fd& file, short kind) {
  struct flock lock{};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file.get(), F_OFD_SETLK, &lock);
}

// File systems without locks, and what is no regular file, are written without.
bool is_locked_by_another(const Fd& file) {
  struct stat status{};
  const bool is_regular = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  return is_regular && set_lock(file, F_WRLCK) != 0 && (errno == EAGAIN || errno == EACCES);
}

// Removes an earlier file's content except its first byte, which is then overwritten. ext4 treats a file that is
// truncated to nothing as a replacement. It writes such a file to disk on close, and the next one that truncates it
// waits for that (3 ms).
// False: errno says why. Something that is not a regular file has no length (EINVAL).
bool drop_old(const Fd& file) {
  return ::ftruncate(file.get(), 1) == 0 || errno == EINVAL;
}

// The file systems of object stores are such, and many of them refuse writes that are not in order. Others that are
// such would not, but a timeline in order suits these, too.
bool is_on_fuse(const std::string& path) {
  struct statfs system{};
  const std::size_t name = path.rfind('/') + 1;  // 0 where there is none
  const std::string folder = name == 0 ? "." : path.substr(0, name);
  return (::statfs(path.c_str(), &system) == 0 || ::statfs(folder.c_str(), &system) == 0) && system.f_type == kFuse;
}

}  // namespace

Result<TimelineFile> open_timeline(const std::string& path) {
  const std::string what = "cannot write the timeline to '" + path + "'";
  const bool takes_only_appends = is_on_fuse(path);
  const int drops = takes_only_appends ? O_TRUNC : 0;  // ftruncate() is refused there
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | drops, kReadableByAll));
  if (!file.is_open()) {
    return Error::from_errno(what);
  }
  if (is_locked_by_another(file)) {
    return Error(Code::kInvalid, what + ": another process writes its own there; give each job a file");
  }
  if (!takes_only_appends && !drop_old(file)) {
    return Error::from_errno(what);
  }
  return TimelineFile{std::move(file), path, takes_only_appends};
}

void unlock_timeline(const Fd& file) {
  set_lock(file, F_UNLCK);
}

std::string unused_timeline_path(const std::string& path) {
  const auto is_there = [](const std::string& file) {
    struct stat status{};
    return ::lstat(file.c_str(), &status) == 0;
  };
  const std::size_t name = path.rfind('/') + 1;  // 0 where there is none
  const std::size_t dot = path.rfind('.');
  const std::size_t end = dot == std::string::npos || dot <= name ? path.size() : dot;
  std::string unused = path;
  for (int i = 2; is_there(unused) && i < kMostFiles; ++i) {
    unused = path.substr(0, end) + "." + std::to_string(i) + path.substr(end);
  }
  return unused;
}

}  // namespace hvd
