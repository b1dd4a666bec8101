#include "launcher/tree/tree_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <dirent.h>

#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

constexpr int kMostFolders = 64;
constexpr mode_t kOwnFolder = 0700;
constexpr mode_t kLockMode = 0600;
constexpr std::size_t kMostSignature = 400;

struct FolderClose {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

Error sync_error(const std::string& path) {
  return Error::from_errno("--sync: " + path);
}

// Makes a folder that only its user may enter, and those above it. One that is there is left as it is.
Result<void> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kOwnFolder) == 0 || errno == EEXIST) {
    return {};
  }
  const auto slash = path.rfind('/');
  if (errno != ENOENT || slash == std::string::npos || slash == 0) {
    return sync_error(path);
  }
  HVD_TRY(make_folder(path.substr(0, slash)));
  return ::mkdir(path.c_str(), kOwnFolder) == 0 || errno == EEXIST ? Result<void>() : sync_error(path);
}

// False: another process has a lock that stands against it. Such locks belong to an open file, so that they end with
// the process, and a lock for writing becomes one for reading without a moment in between.
Result<bool> lock(const Fd& file, short kind, const std::string& path) {
  struct flock wanted{};
  wanted.l_type = kind;
  wanted.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_SETLK, &wanted) == 0) {
    return true;
  }
  if (errno == EAGAIN || errno == EACCES) {
    return false;
  }
  return sync_error("cannot lock " + path);
}

// Removes what was being written when its writer was killed. Where locks do not reach other hosts, one of these may be
// writing such a file now. Blocks for as long as the file system does.
void remove_parts(const Fd& folder) {
  constexpr std::string_view kSuffix = ".part";
  constexpr time_t kLeftBehind = 3600;  // seconds
  const time_t now = ::time(nullptr);
  const std::unique_ptr<DIR, FolderClose> items(::fdopendir(::fcntl(folder.get(), F_DUPFD_CLOEXEC, 0)));
  while (const dirent* const item = items == nullptr ? nullptr : ::readdir(items.get())) {
    struct stat status{};
    if (std::string_view(item->d_name).ends_with(kSuffix) &&
        ::fstatat(folder.get(), item->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        now - status.st_mtime > kLeftBehind) {
      ::unlinkat(folder.get(), item->d_name, 0);
    }
  }
}

}  // namespace

Result<TakenFolder> TreeFolder::take(const Wish& wish) {
  for (int number = wish.number; number <= kMostFolders; ++number) {
    TreeFolder folder;
    folder.number_ = number;
    folder.path_ = wish.place + "/" + wish.name + (number == 1 ? "" : "." + std::to_string(number));
    folder.files_path_ = folder.path_ + "/files";
    HVD_TRY(make_folder(folder.path_));
    const std::string lock_path = folder.path_ + "/lock";
    folder.lock_ = Fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode));
    if (!folder.lock_.is_open()) {
      return sync_error(lock_path);
    }
    HVD_TRY_ASSIGN(folder.may_change_, lock(folder.lock_, F_WRLCK, lock_path));
    if (!folder.may_change_) {
      HVD_TRY_ASSIGN(const bool may_read, lock(folder.lock_, F_RDLCK, lock_path));
      if (!may_read) {
        return TakenFolder{std::nullopt, folder.path_, folder.signature_of_lock()};
      }
    }
    folder.parts_ = Fd(::open(folder.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.parts_.is_open()) {
      return sync_error(folder.path_);
    }
    if (folder.may_change_) {
      folder.sign_lock(wish.who);
      remove_parts(folder.parts_);
    }
    HVD_TRY(make_folder(folder.files_path_));
    folder.files_ = Fd(::open(folder.files_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!folder.files_.is_open()) {
      return sync_error(folder.files_path_);
    }
    folder.index_ = load_index(folder.path_ + "/index");
    const bool is_wanted = std::find(wish.states.begin(), wish.states.end(), folder.index_.digest) != wish.states.end();
    if (folder.may_change_ || is_wanted) {
      return TakenFolder{std::move(folder)};
    }
  }
  return Error(Code::kResource,
               "--sync: " + std::to_string(kMostFolders) + " jobs use other states of " + wish.place + "/" + wish.name);
}

void TreeFolder::sign_lock(const std::string& who) const {
  if (::ftruncate(lock_.get(), 0) == 0) {
    [[maybe_unused]] const ssize_t written = ::pwrite(lock_.get(), who.data(), std::min(who.size(), kMostSignature), 0);
  }
}

std::string TreeFolder::signature_of_lock() const {
  std::array<char, kMostSignature> text{};
  const ssize_t got = ::pread(lock_.get(), text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

Result<void> TreeFolder::announce(const std::vector<TreeEntry>& list) const {
  std::unordered_set<std::string_view> known;
  for (const WrittenEntry& written : index_.entries) {
    known.insert(written.entry.path);
  }
  TreeIndex announced;
  announced.entries = index_.entries;
  for (const TreeEntry& entry : list) {
    if (!known.contains(entry.path)) {
      announced.entries.push_back(WrittenEntry::announced(entry));
    }
  }
  return save_index(path_ + "/index", announced);
}

Result<void> TreeFolder::share(TreeIndex index) {
  index_ = std::move(index);
  HVD_TRY(save_index(path_ + "/index", index_));
  return share();
}

Result<void> TreeFolder::share() {
  may_change_ = false;
  const auto shared = lock(lock_, F_RDLCK, path_ + "/lock");
  return shared.ok() ? Result<void>() : shared.error();
}

Result<std::string> tree_place(const std::vector<std::string>& environment) {
  std::string cache = value_in(environment, "XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = value_in(environment, "HOME");
    if (home.empty()) {
      return Error(Code::kInvalid, "--sync: neither HOME nor XDG_CACHE_HOME is set on the node");
    }
    cache = home + "/.cache";
  }
  std::string place = cache;
  HVD_TRY(make_folder(place));
  for (const char* const part : {"/hvdrun", "/folders"}) {
    place += part;
    HVD_TRY(make_folder(place));
  }
  return place;
}

}  // namespace hvd::launch
