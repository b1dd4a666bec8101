#include "launcher/tree/tree_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>

#include "launcher/process/output_of.h"
#include "launcher/process/own_process.h"
#include "launcher/process/spawn.h"
#include "launcher/tree/ignore_rules.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"
#include "runtime/rendezvous/crypto.h"
#include "runtime/rendezvous/sha256.h"

namespace hvd::launch {
namespace {

constexpr auto kGitTime = std::chrono::minutes(2);
constexpr std::size_t kMostList = 1U << 30U;
constexpr std::size_t kReadBytes = 1U << 20U;
constexpr mode_t kPermissions = 0777;
// What version control keeps in a folder of a working copy.
bool is_version_control(std::string_view name) {
  return name == ".git" || name == ".hg" || name == ".svn";
}

struct FolderClose {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, FolderClose>;

// Leaves out the variables by which a hook of git's, or an editor, would point git at another repository.
std::vector<std::string> without_gits_own(const std::vector<std::string>& environment) {
  constexpr std::array<std::string_view, 7> kOwn{
      "GIT_DIR=",        "GIT_WORK_TREE=", "GIT_INDEX_FILE=", "GIT_PREFIX=", "GIT_OBJECT_DIRECTORY=",
      "GIT_COMMON_DIR=", "GIT_NAMESPACE="};
  std::vector<std::string> others;
  std::copy_if(environment.begin(), environment.end(), std::back_inserter(others), [&](const std::string& entry) {
    return std::none_of(kOwn.begin(), kOwn.end(), [&](std::string_view own) { return entry.starts_with(own); });
  });
  return others;
}

// The texts before each zero byte.
std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    if (const std::string_view name = take_until(list, '\0'); !name.empty()) {
      names.emplace_back(name);
    }
  }
  return names;
}

Result<std::string> real_path(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(path.c_str(), resolved.data()) == nullptr) {
    return Error::from_errno("--sync " + path);
  }
  return std::string(resolved.data());
}

// How many bytes there are: the file may be growing.
struct Content {
  ContentHash hash{};
  ContentProof proof{};
  std::uint64_t size = 0;
};

// `buffer` is for what is read, and `mac` has begun.
Result<Content> read_content(const std::string& path, std::string& buffer, Gmac& mac) {
  // Without waiting: what was a file a moment ago may be a FIFO now.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status{};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) {
    return Error::from_errno("--sync: cannot read " + path);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error::from_errno("--sync: cannot read " + path, ENOENT);
  }
  Sha256 hash;
  std::uint64_t size = 0;
  for (;;) {  // once for both
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return Error::from_errno("--sync: cannot read " + path);
    }
    if (got == 0) {
      return Content{hash.finish(), mac.finish(), size};
    }
    const Bytes bytes = as_bytes(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    hash.add(bytes);
    mac.add(bytes);
    size += static_cast<std::uint64_t>(got);
  }
}

// Scan collects the paths, and then looks at each.
class Scan {
 public:
  Scan(std::string root, const ScanOptions& options, Gmac mac)
      : root_(std::move(root)), options_(options), mac_(std::move(mac)) {}

  [[nodiscard]] std::vector<ContentProof> proofs() && { return std::move(proofs_); }
  Result<std::vector<TreeEntry>> entries() {
    HVD_TRY(read_ignore_file());
    HVD_TRY_ASSIGN(const bool is_listed, list_by_git(""));
    if (!is_listed) {
      HVD_TRY(refuse_everything());
      HVD_TRY(walk(""));
    }
    HVD_TRY_ASSIGN(std::vector<TreeEntry> found, look_at_all());
    if (is_listed && found.empty()) {
      HVD_TRY(refuse_nothing());
    }
    return found;
  }

 private:
  [[nodiscard]] std::string full(const std::string& path) const { return path.empty() ? root_ : root_ + "/" + path; }

  Result<void> read_ignore_file() {
    const std::string path = full(kIgnoreFile);
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) {
      return errno == ENOENT ? Result<void>() : Error::from_errno("--sync: cannot read " + path);
    }
    has_ignore_file_ = true;
    std::string text(kReadBytes, '\0');
    const ssize_t got = ::read(file.get(), text.data(), text.size());
    if (got < 0) {
      return Error::from_errno("--sync: cannot read " + path);
    }
    text.resize(static_cast<std::size_t>(got));
    rules_ = IgnoreRules(text);
    return {};
  }

  // Without git and an ignore file nothing says what is meant, and some folders can hardly be meant as a whole.
  [[nodiscard]] Result<void> refuse_everything() const {
    const auto home = real_path(value_in(options_.environment, "HOME"));
    if (!has_ignore_file_ && (root_ == "/" || (home.ok() && root_ == home.value()))) {
      return Error(Code::kInvalid, "--sync: " + root_ +
                                       " would be copied to every node with all that is in it; start "
                                       "in the folder of your program, or say in " +
                                       full(kIgnoreFile) + " what stays here");
    }
    return {};
  }

  // A folder within what git ignores has files of which git shows none, and the ranks would start in an empty one.
  [[nodiscard]] Result<void> refuse_nothing() const {
    const Folder folder(::opendir(root_.c_str()));
    while (const dirent* const item = folder == nullptr ? nullptr : ::readdir(folder.get())) {
      const std::string name = item->d_name;
      if (name != "." && name != ".." && !is_version_control(name) && !is_own(name)) {
        return Error(Code::kInvalid, "--sync: git ignores all that is in " + root_ +
                                         ", so that nothing would be copied; start in another folder, or name one: "
                                         "--sync=DIR");
      }
    }
    return {};
  }

  // True: the folder, or one above it on the same file system, is a repository, whatever git says.
  [[nodiscard]] bool has_repository() const {
    struct stat top{};
    if (::stat(root_.c_str(), &top) != 0) {
      return false;
    }
    for (std::filesystem::path folder = root_;; folder = folder.parent_path()) {
      struct stat status{};
      if (::stat(folder.c_str(), &status) != 0 || status.st_dev != top.st_dev) {
        return false;
      }
      if (::lstat((folder / ".git").c_str(), &status) == 0) {
        return true;
      }
      if (folder == folder.parent_path()) {
        return false;
      }
    }
  }

  // False: this is no working copy of git's. `below` is the root, or another repository in it.
  Result<bool> list_by_git(const std::string& below) {
    const auto inside = git(below, {"rev-parse", "--is-inside-work-tree", "--show-prefix"});
    if (!inside.ok()) {
      struct stat status{};
      const bool is_one = below.empty() ? has_repository() : ::lstat((full(below) + "/.git").c_str(), &status) == 0;
      if (is_one && !has_ignore_file_) {
        return Error(inside.error().code(), "--sync: git cannot say which files of " +
                                                (below.empty() ? root_ : full(below)) +
                                                " are to be copied: " + inside.error().message() + "; without git, " +
                                                full(kIgnoreFile) + " can say what stays here");
      }
      return false;
    }
    // A submodule that was not fetched is an empty folder of the repository around it.
    const bool is_top = inside.value() == "true\n\n";
    if (below.empty() ? !inside.value().starts_with("true") : !is_top) {
      return false;
    }
    HVD_TRY_ASSIGN(const std::string files,
                   git(below, {"ls-files", "-z", "--cached", "--others", "--exclude-standard"}));
    HVD_TRY(take_list(below, files));
    HVD_TRY(list_folders_by_git(below));
    return true;
  }

  Result<std::string> git(const std::string& below, const std::vector<std::string>& words) const {
    std::vector<std::string> argv{"git", "-C", full(below)};
    argv.insert(argv.end(), words.begin(), words.end());
    return output_of(argv, without_gits_own(options_.environment), Deadline::after(kGitTime), {false, kMostList});
  }

  // Adds the folders that git does not track, among them the empty ones. Git names only the topmost ones, so that what
  // is in them is looked at here, but for what git says that it ignores.
  Result<void> list_folders_by_git(const std::string& below) {
    HVD_TRY_ASSIGN(const std::string others,
                   git(below, {"ls-files", "-z", "--others", "--directory", "--exclude-standard"}));
    std::set<std::string> topmost;
    for (const std::string& name : names_of(others)) {
      if (name == "./") {
        topmost.insert(below);
      } else if (name.back() == '/') {
        topmost.insert(within(below, name));
      }
    }
    if (topmost.empty()) {
      return {};
    }
    HVD_TRY_ASSIGN(const std::set<std::string> left_out, folders_that_git_ignores(below));
    for (const std::string& path : topmost) {
      if (path == below) {
        add_folders_in(path, left_out);
      } else {
        add_folders_from(path, left_out);
      }
    }
    return {};
  }

  // Returns the folder that git names "NAME/", seen from `below`.
  static std::string within(const std::string& below, std::string_view name) {
    return (below.empty() ? "" : below + "/") + std::string(name.substr(0, name.size() - 1));
  }

  // Returns the folders that are ignored themselves. One in which all files are ignored is not, and ls-files would not
  // tell them apart. The names of `git status` are those from the top of the repository.
  Result<std::set<std::string>> folders_that_git_ignores(const std::string& below) const {
    HVD_TRY_ASSIGN(const std::string prefix, git(below, {"rev-parse", "--show-prefix"}));
    HVD_TRY_ASSIGN(const std::string states, git(below, {"--no-optional-locks", "status", "--porcelain", "-z",
                                                         "--ignored=matching", "--untracked-files=all", "--", "."}));
    const std::string before = "!! " + prefix.substr(0, prefix.find('\n'));
    std::set<std::string> folders;
    for (const std::string& name : names_of(states)) {
      if (name.starts_with(before) && name.ends_with('/') && name.size() > before.size()) {
        folders.insert(within(below, std::string_view(name).substr(before.size())));
      }
    }
    return folders;
  }

  // Adds this folder and those in it.
  void add_folders_from(const std::string& path, const std::set<std::string>& left_out) {
    if (rules_.leaves_out_below(path, true) || left_out.contains(path) || is_own(path)) {
      return;
    }
    add(path);
    if (::access((full(path) + "/.git").c_str(), F_OK) != 0) {  // else git is asked about that repository by itself
      add_folders_in(path, left_out);
    }
  }

  // A folder that cannot be read is brought as an empty one, as git lists no files of it.
  void add_folders_in(const std::string& below, const std::set<std::string>& left_out) {
    const Folder folder(::opendir(full(below).c_str()));
    while (const dirent* const item = folder == nullptr ? nullptr : ::readdir(folder.get())) {
      const std::string name = item->d_name;
      const std::string path = below.empty() ? name : below + "/" + name;
      if (name != "." && name != ".." && !is_version_control(name) && is_folder(path, *item)) {
        add_folders_from(path, left_out);
      }
    }
  }

  // Not every file system tells with the name.
  [[nodiscard]] bool is_folder(const std::string& path, const dirent& item) const {
    struct stat status{};
    return item.d_type == DT_DIR ||
           (item.d_type == DT_UNKNOWN && ::lstat(full(path).c_str(), &status) == 0 && S_ISDIR(status.st_mode));
  }

  Result<void> take_list(const std::string& below, const std::string& files) {
    for (std::string path : names_of(files)) {
      if (path.back() == '/') {
        path.pop_back();
      }
      path = (below.empty() ? "" : below + "/") + path;
      struct stat status{};
      if (::lstat(full(path).c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
        // Another repository: a submodule, or one that is just there.
        HVD_TRY_ASSIGN(const bool is_listed, list_by_git(path));
        if (!is_listed && !rules_.leaves_out_below(path, true)) {
          add(path);
          HVD_TRY(walk(path));
        }
        continue;
      }
      if (!rules_.leaves_out_below(path, false)) {
        add(path);
      }
    }
    return {};
  }

  Result<void> walk(const std::string& below) {
    const Folder folder(::opendir(full(below).c_str()));
    if (folder == nullptr) {
      return errno == ENOENT && !below.empty() ? Result<void>()  // it has just gone
                                               : Error::from_errno("--sync: cannot read " + full(below));
    }
    for (errno = 0; const dirent* const item = ::readdir(folder.get()); errno = 0) {
      const std::string name = item->d_name;
      if (name == "." || name == ".." || is_version_control(name)) {
        continue;
      }
      const std::string path = below.empty() ? name : below + "/" + name;
      const bool is_below = is_folder(path, *item);
      if (rules_.leaves_out(path, is_below) || is_own(path)) {
        continue;
      }
      add(path);
      if (is_below) {
        HVD_TRY(walk(path));
      }
    }
    return errno == 0 ? Result<void>() : Error::from_errno("--sync: cannot read " + full(below));
  }

  [[nodiscard]] bool is_own(const std::string& path) const {
    const std::string whole = full(path);
    if (path == kResultsFolder || path.starts_with(std::string(kResultsFolder) + "/")) {
      return true;
    }
    return std::any_of(options_.left_out.begin(), options_.left_out.end(), [&](const std::string& own) {
      return !own.empty() && lies_in(whole, own) && !lies_in(root_, own);
    });
  }

  // Adds the folders in which it is too.
  void add(const std::string& path) {
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      paths_.insert(path.substr(0, slash));
    }
    paths_.insert(path);
  }

  Result<std::vector<TreeEntry>> look_at_all() {
    std::vector<TreeEntry> entries;
    entries.reserve(paths_.size());
    std::set<std::string> folders;
    for (const std::string& path : paths_) {
      // Below a link that has taken the place of a folder, git still knows files, which lie elsewhere now.
      const std::size_t slash = path.rfind('/');
      if (is_own(path) || (slash != std::string::npos && !folders.contains(path.substr(0, slash)))) {
        continue;
      }
      mac_.begin(entries.size());
      ContentProof proof{};
      HVD_TRY_ASSIGN(std::optional<TreeEntry> entry, look_at(path, proof));
      if (entry) {
        if (entry->kind == TreeEntry::Kind::kFolder) {
          folders.insert(path);
        }
        entries.push_back(*std::move(entry));
        proofs_.push_back(proof);
      }
    }
    return entries;
  }

  // Nothing: it has gone, or is no file, folder or link. A file's proof is put into `proof`.
  [[nodiscard]] Result<std::optional<TreeEntry>> look_at(const std::string& path, ContentProof& proof) {
    const std::string whole = full(path);
    struct stat status{};
    if (::lstat(whole.c_str(), &status) != 0) {
      return errno == ENOENT || errno == ENOTDIR ? Result<std::optional<TreeEntry>>(std::optional<TreeEntry>())
                                                 : Error::from_errno("--sync: " + whole);
    }
    TreeEntry entry;
    entry.path = path;
    entry.mode = status.st_mode & kPermissions;
    if (S_ISDIR(status.st_mode)) {
      entry.kind = TreeEntry::Kind::kFolder;
      return std::optional(std::move(entry));
    }
    if (S_ISLNK(status.st_mode)) {
      std::array<char, PATH_MAX> target{};
      const ssize_t length = ::readlink(whole.c_str(), target.data(), target.size());
      if (length <= 0) {
        return Error::from_errno("--sync: cannot read " + whole);
      }
      entry.kind = TreeEntry::Kind::kLink;
      entry.mode = 0;
      entry.target.assign(target.data(), static_cast<std::size_t>(length));
      entry.hash = sha256_of(as_bytes(entry.target));
      return std::optional(std::move(entry));
    }
    if (!S_ISREG(status.st_mode)) {
      return std::optional<TreeEntry>();
    }
    const auto read = read_content(whole, buffer_, mac_);
    if (!read.ok() && read.error().sys_errno() == ENOENT) {
      return std::optional<TreeEntry>();  // it has just gone
    }
    HVD_TRY_ASSIGN(const auto content, read);
    entry.hash = content.hash;
    entry.size = content.size;
    proof = content.proof;
    entry.changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
    return std::optional(std::move(entry));
  }

  const std::string root_;
  const ScanOptions& options_;
  bool has_ignore_file_ = false;
  IgnoreRules rules_;
  Gmac mac_;
  std::vector<ContentProof> proofs_;
  std::string buffer_ = std::string(kReadBytes, '\0');
  std::set<std::string> paths_;  // a path stands before those that it begins, so a folder before what is in it
};

// "project-1f3a5b7c9d2e": the same on every node, and another one for each folder of each machine.
std::string name_of(const std::string& root) {
  const std::string place = own_host_name() + '\0' + std::to_string(::getuid()) + '\0' + root;
  constexpr std::size_t kHashBytes = 6;
  const auto digest = sha256_of(as_bytes(place));
  std::string word;
  constexpr std::size_t kMostWord = 40;
  for (const char c : root.substr(root.rfind('/') + 1).substr(0, kMostWord)) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    word += is_plain ? c : '_';
  }
  return (word.empty() ? "folder" : word) + "-" + hex(Bytes(digest.data(), kHashBytes));
}

}  // namespace

ContentHash digest_of(const std::vector<TreeEntry>& entries) {
  Sha256 hash;
  for (const TreeEntry& entry : entries) {
    ByteWriter out;
    out.text(entry.path).u8(static_cast<std::uint8_t>(entry.kind)).u32(entry.mode).u64(entry.size);
    out.raw(entry.hash.data(), entry.hash.size());
    hash.add(as_bytes(out.str()));
  }
  return hash.finish();
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path == folder || folder == "/" || path.starts_with(folder + "/");
}

std::optional<std::string> way_within(const Tree& tree, const std::string& folder) {
  const auto real = real_path(folder);
  const std::string& path = real.ok() ? real.value() : folder;
  if (path == tree.root) {
    return "";
  }
  return path.starts_with(tree.root + "/") ? std::optional(path.substr(tree.root.size())) : std::nullopt;
}

Result<Tree> scan_tree(const std::string& folder, const ScanOptions& options) {
  HVD_TRY_ASSIGN(std::string root, real_path(folder));
  struct stat status{};
  if (::stat(root.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return Error(Code::kInvalid, "--sync " + folder + ": this is not a folder");
  }
  Tree tree;
  tree.root = root;
  tree.name = name_of(root);
  HVD_TRY(fill_random(tree.key));
  HVD_TRY_ASSIGN(Gmac mac, Gmac::create(tree.key));
  Scan scan(std::move(root), options, std::move(mac));
  HVD_TRY_ASSIGN(tree.entries, scan.entries());
  tree.proofs = std::move(scan).proofs();
  tree.digest = digest_of(tree.entries);
  for (const TreeEntry& entry : tree.entries) {
    tree.bytes += entry.size;
  }
  return tree;
}

}  // namespace hvd::launch
