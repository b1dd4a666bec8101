#include "launcher/process/remove_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <dirent.h>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// Decodes "\040" and the like, which mountinfo writes for blanks.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_octal =
        text[i] == '\\' && i + 3 < text.size() &&
        std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    text.begin() + static_cast<std::ptrdiff_t>(i) + 4, [](char c) { return c >= '0' && c <= '7'; });
    if (is_octal) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Returns the mount of a descriptor, for kernels that cannot be told to stay within one; empty: unknown.
std::string mount_of(int fd) {
  std::ifstream in("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("mnt_id:")) {
      return line;
    }
  }
  return "";
}

// Opens a folder in that of `at`, on the same mount. EXDEV: another one is mounted there.
Fd open_folder(int at, const char* name) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  Fd fd(static_cast<int>(::syscall(SYS_openat2, at, name, &how, sizeof how)));
  if (fd.is_open() || (errno != ENOSYS && errno != EPERM)) {
    return fd;
  }
  fd = Fd(::openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.is_open()) {
    const std::string mount = mount_of(fd.get());
    if (mount.empty() || mount != mount_of(at)) {
      fd.reset();
      errno = EXDEV;
    }
  }
  return fd;
}

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// Reads a folder. Its owner may have to give himself the right first.
Folder read_folder(int path_fd) {
  struct stat info{};
  if (::fstat(path_fd, &info) == 0 && info.st_uid == ::geteuid() && (info.st_mode & S_IRWXU) != S_IRWXU) {
    static_cast<void>(::chmod(("/proc/self/fd/" + std::to_string(path_fd)).c_str(), 0700) == 0);
  }
  Fd fd(::openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* dir = fd.is_open() ? ::fdopendir(fd.get()) : nullptr;
  if (dir != nullptr) {
    static_cast<void>(fd.release());
  }
  return {dir, ::closedir};
}

class Removal {
 public:
  explicit Removal(std::string path) : path_(std::move(path)) {}

  // `parent` is the folder that holds `name`.
  Result<void> run(const Fd& parent, const std::string& name) {
    if (::unlinkat(parent.get(), name.c_str(), 0) == 0 || errno == ENOENT) {
      return {};
    }
    if (errno != EISDIR) {
      return Error::from_errno("cannot remove " + path_);
    }
    if (enter(parent.get(), name)) {
      while (!levels_.empty() && !is_over_) {
        if (!levels_.back().folders.empty()) {
          const std::string next = std::move(levels_.back().folders.back());
          levels_.back().folders.pop_back();
          descend(next);
        } else {
          leave(parent);
        }
      }
    }
    return failure_ ? *failure_ : Result<void>();
  }

 private:
  struct Level {
    std::string name;
    dev_t device = 0;
    ino_t number = 0;
    std::vector<std::string> folders;  // that are still to be removed
  };

  void descend(const std::string& name) {
    Fd parent = std::exchange(at_, Fd());
    if (!enter(parent.get(), name)) {
      at_ = std::move(parent);
    }
  }

  // Goes into the folder, and removes everything there except folders.
  bool enter(int parent, const std::string& name) {
    Fd folder = open_folder(parent, name.c_str());
    struct stat info{};
    if (!folder.is_open() || ::fstat(folder.get(), &info) != 0) {
      note(name);
      return false;
    }
    const Folder entries = read_folder(folder.get());
    levels_.push_back({name, info.st_dev, info.st_ino, {}});
    at_ = std::move(folder);
    if (!entries) {
      note("");  // an empty one can be removed all the same
      return true;
    }
    while (const dirent* entry = ::readdir(entries.get())) {
      const std::string own = entry->d_name;
      if (own == "." || own == "..") {
        continue;
      }
      if (entry->d_type != DT_DIR && ::unlinkat(at_.get(), own.c_str(), 0) == 0) {
        continue;
      }
      if (entry->d_type == DT_DIR || errno == EISDIR) {
        levels_.back().folders.push_back(own);
      } else {
        note(own);
      }
    }
    return true;
  }

  // Goes up, and removes the folder that this one was.
  void leave(const Fd& top) {
    const std::string name = levels_.back().name;
    Fd up = levels_.size() == 1 ? Fd() : open_folder(at_.get(), "..");
    levels_.pop_back();
    if (!levels_.empty()) {
      struct stat info{};
      const Level& above = levels_.back();
      if (!up.is_open() || ::fstat(up.get(), &info) != 0 || info.st_dev != above.device ||
          info.st_ino != above.number) {
        errno = ESTALE;  // somebody has moved it, so that ".." leads elsewhere
        note(name);
        is_over_ = true;
        return;
      }
    }
    at_ = std::move(up);
    const int parent = levels_.empty() ? top.get() : at_.get();
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      // A file that stays is reported once, and not again for each folder above it.
      if (errno != ENOTEMPTY || !failure_) {
        note(name);
      }
    }
  }

  // Records a file of the current folder that stays; errno says why.
  void note(const std::string& name) {
    const int why = errno;
    if (why == ENOENT) {
      return;
    }
    std::string file = path_;
    for (std::size_t i = 1; i < levels_.size(); ++i) {
      file += "/" + levels_[i].name;
    }
    file += levels_.empty() || name.empty() ? "" : "/" + name;
    if (why == EXDEV) {
      failure_ = Error(Code::kResource, "something is mounted at " + file + ", so that the rest of " + path_ +
                                            " is left as it is; unmount it, and remove the folder then");
      is_over_ = true;
    } else if (!failure_) {
      failure_ = Error::from_errno("cannot remove " + file, why);
    }
  }

  const std::string path_;
  Fd at_;                      // the folder of the last level
  std::vector<Level> levels_;  // from the top to it
  std::optional<Error> failure_;
  bool is_over_ = false;
};

}  // namespace

std::vector<std::string> mounts_within(const std::string& mountinfo, const std::string& path) {
  std::vector<std::string> found;
  std::ifstream in(mountinfo);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string ignored;
    std::string root;
    std::string at;
    words >> ignored >> ignored >> ignored >> root >> at;
    at = unescaped(at);
    if (at != path && !at.starts_with(path + "/")) {
      continue;
    }
    const auto dash = line.find(" - ");
    std::string type;
    std::string source;
    std::istringstream(dash == std::string::npos ? "" : line.substr(dash + 3)) >> type >> source;
    found.push_back(at + " (" + type + " " + unescaped(source) + (root == "/" ? "" : ", of it " + unescaped(root)) +
                    ")");
  }
  return found;
}

Result<void> remove_tree(const std::string& path, const std::string& mountinfo) {
  const auto slash = path.rfind('/');
  const std::string name = path.substr(slash + 1);
  if (!path.starts_with('/') || name.empty() || name == "." || name == "..") {
    return Error(Code::kInvalid, "cannot remove '" + path + "': expected the absolute path of a folder");
  }
  const std::string above = slash == 0 ? "/" : path.substr(0, slash);
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(above.c_str(), nullptr), ::free);
  const Fd parent(real ? ::open(real.get(), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1);
  if (!parent.is_open()) {
    return errno == ENOENT ? Result<void>() : Error::from_errno("cannot enter " + above);
  }
  const std::string own = (std::string_view(real.get()) == "/" ? std::string() : std::string(real.get())) + "/" + name;
  if (const auto mounts = mounts_within(mountinfo, own); !mounts.empty()) {
    return Error(Code::kResource, path + " is left as it is, since something is mounted there: " + mounts.front() +
                                      (mounts.size() > 1 ? " and " + std::to_string(mounts.size() - 1) + " more" : "") +
                                      "; unmount it, and remove the folder then");
  }
  // Another node may be this same machine, and its removal may take a folder that this one was about to enter.
  constexpr int kTries = 3;
  Result<void> removed;
  for (int i = 0; i < kTries; ++i) {
    removed = Removal(path).run(parent, name);
    if (removed.ok() || (removed.error().sys_errno() != ESTALE && removed.error().sys_errno() != ENOTEMPTY)) {
      break;
    }
  }
  return removed;
}

}  // namespace hvd::launch
