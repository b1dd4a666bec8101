#include "launcher/tree/result_walk.h"

#include <unistd.h>

#include <array>
#include <utility>

#include <limits.h>

namespace hvd::launch {
namespace {

constexpr mode_t kPermissions = 0777;
constexpr mode_t kFolderMode = 0755;

}  // namespace

void ResultWalk::look_on(std::size_t entries) {
  for (; entries > 0 && !is_over(); --entries) {
    if (noted_ < brought_.size()) {
      note_next();
    } else if (folder_ == nullptr) {
      enter_next();
    } else if (const dirent* const item = ::readdir(folder_.get()); item == nullptr) {
      folder_.reset();
    } else if (const std::string name = item->d_name; name != "." && name != "..") {
      look_at(at_.empty() ? name : at_ + "/" + name);
    }
  }
}

void ResultWalk::note_next() {
  const WrittenEntry& written = brought_[noted_++];
  known_.emplace(written.entry.path, &written);
}

// One that cannot be opened has just gone, or a rank has taken its rights away.
void ResultWalk::enter_next() {
  at_ = std::move(folders_.back());
  folders_.pop_back();
  folder_.reset(::opendir((root_ + "/" + at_).c_str()));
}

// Folders are looked into whatever their names, since a pattern may name what is in them.
void ResultWalk::look_at(const std::string& path) {
  struct stat status{};
  if (::lstat((root_ + "/" + path).c_str(), &status) != 0) {
    return;
  }
  if (S_ISDIR(status.st_mode)) {
    folders_.push_back(path);
    return;
  }
  const auto known = known_.find(path);
  const bool is_result = (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode)) &&
                         (known == known_.end() || !known->second->looks_like(status));
  if (is_result && patterns_.leaves_out_below(path, false)) {
    add(path, status);
  }
}

void ResultWalk::add(const std::string& path, const struct stat& status) {
  TreeEntry entry;
  entry.path = path;
  entry.mode = status.st_mode & kPermissions;
  if (S_ISLNK(status.st_mode)) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink((root_ + "/" + path).c_str(), target.data(), target.size());
    if (length <= 0) {
      return;
    }
    entry.kind = TreeEntry::Kind::kLink;
    entry.target.assign(target.data(), static_cast<std::size_t>(length));
  } else {
    entry.size = static_cast<std::uint64_t>(status.st_size);
    entry.changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;  // it may be before 1970
  }
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    TreeEntry& folder = found_[path.substr(0, slash)];
    folder.path = path.substr(0, slash);
    folder.kind = TreeEntry::Kind::kFolder;
    folder.mode = kFolderMode;
  }
  found_[path] = std::move(entry);
}

std::vector<TreeEntry> ResultWalk::take() {
  std::vector<TreeEntry> entries;
  entries.reserve(found_.size());
  for (auto& [path, entry] : found_) {
    entries.push_back(std::move(entry));
  }
  found_.clear();
  return entries;
}

}  // namespace hvd::launch
