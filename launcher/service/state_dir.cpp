#include "launcher/service/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

#include "launcher/process/own_process.h"
#include "launcher/process/remove_tree.h"

namespace hvd::launch {
namespace {

constexpr mode_t kOwnFolder = 0700;
constexpr mode_t kOwnFile = 0600;
// Where this user can have no more inotify instances (fs.inotify.max_user_instances), changes are noticed after this
// long.
constexpr auto kWithoutWatch = std::chrono::seconds(2);
// The kernel reports that a file is closed before it releases the lock on it. A process that looks at once may still
// find it locked, so it looks again after this long.
constexpr auto kLockSettles = std::chrono::seconds(1);

Error unusable(const std::string& path, int number) {
  return Error(Code::kResource, Error::from_errno("cannot make the folder " + path, number).message() +
                                    "; make the one above it writable, or set XDG_STATE_HOME to one that is");
}

Result<void> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kOwnFolder) != 0 && errno != EEXIST) {
    return unusable(path, errno);
  }
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return unusable(path, errno);
  }
  if (!S_ISDIR(info.st_mode)) {
    return unusable(path, ENOTDIR);
  }
  return {};
}

// Creates the folders above, whose mode is the user's own choice, and then ours.
Result<void> make_folders_above(const std::string& path) {
  for (auto at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    HVD_TRY(make_folder(path.substr(0, at)));
  }
  return make_folder(path);
}

// Writes only when the mode is wrong: on a disk that cannot be written, a needless write would hide the error that
// matters.
Result<void> keep_others_out(const std::string& folder) {
  constexpr mode_t kRights = 07777;
  struct stat info{};
  if ((::stat(folder.c_str(), &info) == 0 && (info.st_mode & kRights) == kOwnFolder) ||
      ::chmod(folder.c_str(), kOwnFolder) == 0) {
    return {};
  }
  return Error(Code::kResource, Error::from_errno("cannot keep others out of " + folder).message() +
                                    "; it must be yours and writable, or set XDG_STATE_HOME to one that is");
}

// NFS without its lock service, and some file systems in user space, have no locks.
Error unlockable(const std::string& path) {
  return Error(Code::kResource,
               Error::from_errno("cannot lock " + path).message() +
                   "; make its folder writable on a disk of this machine, or set XDG_STATE_HOME to one "
                   "that is");
}

// Types of statfs(2): NFS, SMB 1, CIFS, SMB 2 and later, AFS (two clients), Coda, Ceph, OCFS2, Lustre, GPFS, BeeGFS,
// PanFS. Older headers of the kernel, and some of the file systems, have no names for theirs.
constexpr std::array<unsigned long, 13> kNetworkFileSystems = {
    0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x5346414f, 0x6b414653, 0x73757245,
    0x00c36400, 0x7461636f, 0x0bd00bd0, 0x47504653, 0x19830326, 0xaad7aaea};

std::string owner_in(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  std::getline(file, name);
  return name;
}

// The file gets its name only when it is whole, so that nobody reads a part of it.
Result<void> make_owner_file(const std::string& path, const std::string& machine) {
  const std::string own = path + "." + machine + "." + std::to_string(::getpid());
  const Fd file(::open(own.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string line = machine + "\n";
  const bool is_whole = file.is_open() &&
                        ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                        ::fsync(file.get()) == 0;
  const bool is_there = is_whole && (::link(own.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int number = errno;
  ::unlink(own.c_str());
  return is_there ? Result<void>()
                  : Error(Code::kResource, Error::from_errno("cannot write " + path, number).message());
}

flock whole_file(short type) {
  flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

Result<StateDir> StateDir::open(const std::string& root) {
  StateDir dir(root);
  HVD_TRY(make_folders_above(root));
  for (const std::string& folder : {root + "/service", dir.locks(), dir.tickets(), root + "/service/runs"}) {
    HVD_TRY(make_folder(folder));
    HVD_TRY(keep_others_out(folder));
  }
  if (is_on_network(root + "/service")) {
    HVD_TRY(own_folder(root + "/service", own_host_name()));
  }
  return dir;
}

std::string StateDir::database() const {
  return root_ + "/service/jobs.db";
}

std::string StateDir::locks() const {
  return root_ + "/service/locks";
}

std::string StateDir::lock_of(const std::string& uuid) const {
  return root_ + "/service/locks/" + uuid;
}

std::string StateDir::tickets() const {
  return root_ + "/service/tickets";
}

std::string StateDir::ticket_of(const std::string& uuid) const {
  return root_ + "/service/tickets/" + uuid;
}

std::string StateDir::page_of(const std::string& uuid) const {
  return run_of(uuid) + "/job.html";
}

std::string StateDir::run_of(const std::string& uuid) const {
  return root_ + "/service/runs/" + uuid;
}

Result<void> StateDir::remove_run(const std::string& uuid) const {
  return remove_tree(run_of(uuid));
}

void StateDir::wake() const {
  // Closing a file that was open for writing is the event that the watches see.
  const Fd file(::open((locks() + "/wake").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnFile));
}

bool is_on_network(const std::string& folder) {
  struct statfs info{};
  return ::statfs(folder.c_str(), &info) == 0 &&
         std::find(kNetworkFileSystems.begin(), kNetworkFileSystems.end(),
                   static_cast<unsigned long>(info.f_type) & 0xffffffffUL) != kNetworkFileSystems.end();
}

Result<void> own_folder(const std::string& folder, const std::string& machine) {
  const std::string path = folder + "/machine";
  std::string owner = owner_in(path);
  if (owner.empty()) {
    HVD_TRY(make_owner_file(path, machine));
    owner = owner_in(path);
  }
  if (owner == machine) {
    return {};
  }
  if (owner.empty()) {
    return Error(Code::kResource, path + " names no machine; remove it");
  }
  return Error(Code::kResource,
               "the jobs in " + folder + " are those of the machine " + owner + ", and this one is " + machine +
                   "; run this command there, or set XDG_STATE_HOME to a folder of this machine's own. If " + owner +
                   " is gone, remove " + path);
}

Result<std::optional<Fd>> take_lock(const std::string& path) {
  for (;;) {
    Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnFile));
    if (!file.is_open()) {
      return unlockable(path);
    }
    flock lock = whole_file(F_WRLCK);
    if (::fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno == EAGAIN || errno == EACCES) {
        return std::optional<Fd>();
      }
      return unlockable(path);
    }
    struct stat info{};
    if (::fstat(file.get(), &info) == 0 && info.st_nlink > 0) {
      return std::optional<Fd>(std::move(file));
    }
    // The previous holder has removed the file, so a lock on it would exclude nobody. Open it again.
  }
}

Result<Fd> wait_for_lock(const std::string& path, Deadline deadline) {
  constexpr auto kBetween = std::chrono::milliseconds(5);
  for (;;) {
    HVD_TRY_ASSIGN(std::optional<Fd> lock, take_lock(path));
    if (lock) {
      return std::move(*lock);
    }
    if (deadline.has_passed()) {
      return Error(Code::kResource, "another process keeps " + path + " locked");
    }
    std::this_thread::sleep_for(kBetween);
  }
}

bool is_locked(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) {
    return false;
  }
  flock lock = whole_file(F_WRLCK);
  return ::fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<FolderWatch> FolderWatch::on(const std::string& folder) {
  FolderWatch watch(Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)));
  HVD_TRY(watch.add(folder));
  return watch;
}

Result<void> FolderWatch::add(const std::string& folder) {
  if (!fd_.is_open() || ::inotify_add_watch(fd_.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO) >= 0) {
    return {};
  }
  if (errno != ENOSPC) {
    return Error(Code::kResource, Error::from_errno("cannot watch the folder " + folder).message());
  }
  fd_.reset();
  return {};
}

bool FolderWatch::wait(Duration longest) {
  if (std::exchange(is_to_look_soon_, false) || !fd_.is_open()) {
    longest = std::min<Duration>(longest, kWithoutWatch);
  }
  if (was_woken_) {
    longest = std::min<Duration>(longest, kLockSettles);
  }
  const Deadline deadline = Deadline::after(longest);
  pollfd ready{fd_.get(), POLLIN, 0};  // poll(2) ignores a descriptor of -1
  int polled = 0;
  do {
    polled = ::poll(&ready, 1, deadline.poll_ms());
  } while (polled < 0 && errno == EINTR);
  take_news();
  was_woken_ = polled > 0;
  return was_woken_;
}

void FolderWatch::take_news() {
  alignas(inotify_event) std::array<char, 4096> events{};
  while (fd_.is_open() && ::read(fd_.get(), events.data(), events.size()) > 0) {
  }
}

}  // namespace hvd::launch
