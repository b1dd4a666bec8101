#include "launcher/tree/tree_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

#include <limits.h>

#include "runtime/base/text.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {
namespace {

// So many entries take some milliseconds.
constexpr std::size_t kWrittenPerTurn = 1000;
constexpr mode_t kOwnRights = 0700;  // without these of its user, a folder could not be written to next time
constexpr mode_t kOwnWrite = 0600;
constexpr std::int64_t kSecond = 1'000'000'000;

// Returns what utimensat(2) takes to set the time of the content's change alone.
std::array<struct timespec, 2> times_of(const TreeEntry& entry) {
  const std::int64_t rest = (entry.changed_ns % kSecond + kSecond) % kSecond;  // also before 1970
  return {{{0, UTIME_OMIT}, {static_cast<time_t>((entry.changed_ns - rest) / kSecond), static_cast<long>(rest)}}};
}

// The umask can only be read by setting it. Nothing else of this process makes files meanwhile.
mode_t own_umask() {
  const mode_t own = ::umask(0);
  ::umask(own);
  return own;
}

}  // namespace

std::string tag_of_writer() {
  const auto nonce = make_nonce();
  return nonce.ok() ? hex(Bytes(nonce.value()).first(8)) : std::to_string(::getpid());
}

TreeWriter::TreeWriter(Place place, TreeIndex before, std::shared_ptr<const std::vector<TreeEntry>> list, Way way)
    : place_(std::move(place)), way_(way), whole_list_(std::move(list)), list_(*whole_list_) {
  std::unordered_set<std::string_view> listed;
  for (const TreeEntry& entry : list_) {
    listed.insert(entry.path);
  }
  for (WrittenEntry& written : before.entries) {
    std::string name = written.entry.path;
    before_.emplace(std::move(name), std::move(written));
  }
  for (const auto& [name, written] : before_) {
    if (!listed.contains(name)) {
      gone_.push_back(&written);
    }
  }
  std::sort(gone_.begin(), gone_.end(),
            [](const WrittenEntry* a, const WrittenEntry* b) { return a->entry.path < b->entry.path; });
}

TreeWriter::~TreeWriter() {
  drop_part();
}

void TreeWriter::drop_part() {
  if (file_.is_open()) {
    ::unlinkat(place_.parts, place_.part.c_str(), 0);
  }
  file_.reset();
}

void TreeWriter::skip() {
  drop_part();
  ++next_;
}

void TreeWriter::lose() {
  const TreeEntry& entry = list_[wanted_[next_]];
  if (const auto before = before_.find(entry.path); before != before_.end()) {
    remove(before->second);
    before_.erase(before);
  }
  changed_.note(entry.path);
  skip();
}

Result<bool> TreeWriter::prepare() {
  for (std::size_t done = 0; done < kWrittenPerTurn; ++done) {
    if (!gone_.empty()) {
      remove(*gone_.back());
      gone_.pop_back();
    } else if (cursor_ < list_.size()) {
      const auto placed = place(static_cast<std::uint32_t>(cursor_++));
      if (!placed.ok()) {
        has_failed_ = true;
        return placed.error();
      }
    } else {
      return true;
    }
  }
  return false;
}

// What cannot be removed does no harm: a folder with files of somebody else's, or a file that has gone.
void TreeWriter::remove(const WrittenEntry& written) {
  const TreeEntry& entry = written.entry;
  const auto parent = parent_of(entry.path);
  if (!parent.ok()) {
    return;
  }
  const auto& [folder, name] = parent.value();
  struct stat status{};
  if (written.is_announced() &&
      (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !written.looks_like(status))) {
    return;  // it has never come: what has its name is somebody else's
  }
  if (entry.kind == TreeEntry::Kind::kFolder) {
    ::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
  } else if (::unlinkat(folder, name.c_str(), 0) == 0) {
    ++removed_;
  }
}

Result<void> TreeWriter::place(std::uint32_t number) {
  const TreeEntry& entry = list_[number];
  switch (entry.kind) {
    case TreeEntry::Kind::kFolder:
      return place_folder(entry);
    case TreeEntry::Kind::kLink:
      return place_link(entry);
    case TreeEntry::Kind::kFile:
      break;
  }
  HVD_TRY_ASSIGN(const bool is_there, place_file(entry));
  if (!is_there) {
    wanted_.push_back(number);
  }
  return {};
}

Result<void> TreeWriter::place_folder(const TreeEntry& entry) {
  HVD_TRY_ASSIGN(const auto parent, parent_of(entry.path));
  const auto& [folder, name] = parent;
  const mode_t mode = (way_ == Way::kAsUmask ? entry.mode & ~own_umask() : entry.mode) | kOwnRights;
  struct stat status{};
  const bool is_there = ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  if (!is_there) {
    HVD_TRY(make_room(folder, name, entry.path));
    if (::mkdirat(folder, name.c_str(), mode) != 0) {
      return error_at(entry.path);
    }
  }
  const Fd made(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!made.is_open() || ((!is_there || (status.st_mode & 0777) != mode) && ::fchmod(made.get(), mode) != 0) ||
      ::fstat(made.get(), &status) != 0) {
    return error_at(entry.path);
  }
  note(entry, status);
  return {};
}

Result<void> TreeWriter::place_link(const TreeEntry& entry) {
  HVD_TRY_ASSIGN(const auto parent, parent_of(entry.path));
  const auto& [folder, name] = parent;
  std::array<char, PATH_MAX> target{};
  const ssize_t length = ::readlinkat(folder, name.c_str(), target.data(), target.size());
  if (length < 0 || std::string_view(target.data(), static_cast<std::size_t>(length)) != entry.target) {
    HVD_TRY(make_room(folder, name, entry.path));
    if (::symlinkat(entry.target.c_str(), folder, name.c_str()) != 0) {
      return error_at(entry.path);
    }
  }
  struct stat status{};
  if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return error_at(entry.path);
  }
  note(entry, status);
  return {};
}

// False: its content is wanted.
Result<bool> TreeWriter::place_file(const TreeEntry& entry) {
  const auto before = before_.find(entry.path);
  if (before == before_.end() || before->second.entry.kind != TreeEntry::Kind::kFile ||
      before->second.entry.hash != entry.hash) {
    return false;
  }
  HVD_TRY_ASSIGN(const auto parent, parent_of(entry.path));
  const auto& [folder, name] = parent;
  struct stat status{};
  if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !before->second.looks_like(status)) {
    return false;
  }
  if ((status.st_mode & 0777) != entry.mode && (::fchmodat(folder, name.c_str(), entry.mode, 0) != 0 ||
                                                ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)) {
    return error_at(entry.path);
  }
  // The time too is that of the list: others who get the file from here go by it.
  const std::array<struct timespec, 2> times = times_of(entry);
  const bool has_time = status.st_mtim.tv_sec == times[1].tv_sec && status.st_mtim.tv_nsec == times[1].tv_nsec;
  if (!has_time && (::utimensat(folder, name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0 ||
                    ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)) {
    return error_at(entry.path);
  }
  note(entry, status);
  return true;
}

Result<void> TreeWriter::write(const FilePiece& piece) {
  if (has_all()) {
    return Error(Code::kProtocol, "bytes of a file that was not asked for");
  }
  const TreeEntry& entry = list_[wanted_[next_]];
  if (!file_.is_open()) {
    HVD_TRY(begin_file(entry));
  }
  const std::uint64_t left = entry.size - file_bytes_;
  if (piece.hole > left || piece.bytes.size() > left - piece.hole) {
    return Error(Code::kProtocol, "more bytes of a file than it has");
  }
  if (piece.hole > 0) {
    HVD_TRY(leave_hole(entry, piece));
  }
  file_bytes_ += piece.hole + piece.bytes.size();
  if (!write_all(file_.get(), piece.bytes)) {
    return error_at(entry.path);
  }
  if (mac_) {
    mac_->add(as_bytes(piece.bytes));
  }
  return piece.is_end ? end_file(entry) : Result<void>();
}

// A hole at the end is one only once the file has its length.
Result<void> TreeWriter::leave_hole(const TreeEntry& entry, const FilePiece& piece) {
  if (mac_) {
    return Error(Code::kProtocol, "a hole in a file of which the list has a proof");
  }
  const std::uint64_t after = file_bytes_ + piece.hole;
  if (after > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return Error::from_errno("--sync: " + place_.path + "/" + entry.path, EFBIG);
  }
  const auto end = static_cast<off_t>(after);
  if (::ftruncate(file_.get(), end) != 0 || ::lseek(file_.get(), end, SEEK_SET) < 0) {
    return error_at(entry.path);
  }
  return {};
}

// A file that is there is not written over: a program may be running it, or have it mapped.
Result<void> TreeWriter::begin_file(const TreeEntry& entry) {
  file_bytes_ = 0;
  if (mac_) {
    mac_->begin(wanted_[next_]);
  }
  for (int attempt = 0; attempt < 2 && !file_.is_open(); ++attempt) {
    // Asking for the rights that it is to have is cheaper than to give it them later.
    const mode_t before = way_ == Way::kAsListed ? ::umask(0) : 0;
    file_ = Fd(::openat(place_.parts, place_.part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                        entry.mode | kOwnWrite));
    if (way_ == Way::kAsListed) {
      ::umask(before);
    }
    if (!file_.is_open() && errno != EEXIST) {
      break;
    }
    if (!file_.is_open()) {
      HVD_TRY(make_room(place_.parts, place_.part, entry.path));
    }
  }
  return file_.is_open() ? Result<void>() : error_at(entry.path);
}

Result<void> TreeWriter::end_file(const TreeEntry& entry) {
  const bool is_as_listed = !mac_ || mac_->finish() == proofs_[wanted_[next_]];
  std::array<struct timespec, 2> times = times_of(entry);
  if (!is_as_listed) {
    times[1].tv_nsec = UTIME_OMIT;  // nobody is to take it for that of the list
  }
  HVD_TRY_ASSIGN(const mode_t rights, rights_given(entry));
  const mode_t wanted = way_ == Way::kAsUmask ? rights & entry.mode : entry.mode;
  if (::futimens(file_.get(), times.data()) != 0 || (rights != wanted && ::fchmod(file_.get(), wanted) != 0)) {
    return error_at(entry.path);
  }
  HVD_TRY(name_part(entry));
  const Fd file = std::move(file_);  // from now on it is no part that would be dropped
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {  // a new name changes a time
    return error_at(entry.path);
  }
  note(entry, status);
  if (!is_as_listed) {
    changed_.note(entry.path);
    written_.back().entry.hash = {};
  }
  ++next_;
  return {};
}

// Returns the rights that the system gives a new file. They depend on the rights that are asked for, the umask and the
// folder alone, so the system is asked once for each kind of rights, and not for each file.
Result<mode_t> TreeWriter::rights_given(const TreeEntry& entry) {
  const auto known = rights_given_.find(entry.mode);
  if (known != rights_given_.end()) {
    return known->second;
  }
  struct stat status{};
  if (::fstat(file_.get(), &status) != 0) {
    return error_at(entry.path);
  }
  return rights_given_[entry.mode] = status.st_mode & 0777;
}

// The file takes its name, in the place of whatever has it.
Result<void> TreeWriter::name_part(const TreeEntry& entry) {
  HVD_TRY_ASSIGN(const auto parent, parent_of(entry.path));
  const auto& [folder, name] = parent;
  const char* const part = place_.part.c_str();
  if (::renameat(place_.parts, part, folder, name.c_str()) == 0) {
    return {};
  }
  if (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST) {
    HVD_TRY(make_room(folder, name, entry.path));
  }
  return ::renameat(place_.parts, part, folder, name.c_str()) == 0 ? Result<void>() : error_at(entry.path);
}

Result<std::pair<int, std::string>> TreeWriter::parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return std::pair(place_.files, path);
  }
  std::string name = path.substr(slash + 1);
  const std::string folder = path.substr(0, slash);
  if (parent_.is_open() && parent_path_ == folder) {
    return std::pair(parent_.get(), std::move(name));
  }
  Fd at;
  for (std::size_t begin = 0; begin <= folder.size();) {
    const std::size_t end = std::min(folder.find('/', begin), folder.size());
    const std::string part = folder.substr(begin, end - begin);
    at = Fd(::openat(at.is_open() ? at.get() : place_.files, part.c_str(),
                     O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!at.is_open()) {
      return error_at(folder);
    }
    begin = end + 1;
  }
  parent_ = std::move(at);
  parent_path_ = folder;
  return std::pair(parent_.get(), std::move(name));
}

Result<void> TreeWriter::make_room(int parent, const std::string& name, const std::string& path) {
  if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) {
    return {};
  }
  if (errno != EISDIR && errno != EPERM) {
    return error_at(path);
  }
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) {
    return {};
  }
  return errno == ENOTEMPTY || errno == EEXIST
             ? Error(Code::kResource, "--sync: " + place_.path + "/" + path +
                                          " is to become something else, but it is a folder with files that hvdrun "
                                          "has not put there; remove it")
             : error_at(path);
}

void TreeWriter::note(const TreeEntry& entry, const struct stat& status) {
  WrittenEntry written;
  written.entry = entry;
  written.describe(status);
  written_.push_back(std::move(written));
}

std::vector<std::uint32_t> TreeWriter::begin_rest() {
  drop_part();  // what there is of it is replaced
  return {wanted_.begin() + static_cast<std::ptrdiff_t>(next_), wanted_.end()};
}

TreeIndex TreeWriter::index(const ContentHash& digest) const {
  TreeIndex index;
  index.entries = written_;
  if (gone_.empty() && cursor_ == list_.size() && has_all() && !has_failed_) {
    index.digest = digest;
    return index;
  }
  // It was broken off: what is not written anew is still as it was, or is found to be missing.
  std::unordered_set<std::string_view> known;
  for (const WrittenEntry& written : written_) {
    known.insert(written.entry.path);
  }
  for (const auto& [name, written] : before_) {
    if (!known.contains(name)) {
      index.entries.push_back(written);
    }
  }
  return index;
}

Error TreeWriter::error_at(const std::string& path) const {
  return Error::from_errno("--sync: " + place_.path + "/" + path);
}

}  // namespace hvd::launch
