#include "launcher/tree/tree_index.h"

#include <algorithm>

#include "runtime/base/fd.h"
#include "runtime/base/replace_file.h"

namespace hvd::launch {
namespace {

constexpr mode_t kIndexMode = 0600;

std::int64_t nanoseconds(const struct timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

WrittenEntry WrittenEntry::announced(const TreeEntry& entry) {
  WrittenEntry written;
  written.entry = entry;
  written.modified_ns = entry.changed_ns;
  return written;
}

void WrittenEntry::describe(const struct stat& status) {
  entry.size = S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size) : 0;
  modified_ns = nanoseconds(status.st_mtim);
  changed_ns = nanoseconds(status.st_ctim);
  inode = status.st_ino;
}

bool WrittenEntry::looks_like(const struct stat& status) const {
  switch (entry.kind) {
    case TreeEntry::Kind::kFolder:
      return S_ISDIR(status.st_mode);  // its times change with each file in it
    case TreeEntry::Kind::kLink:
      return S_ISLNK(status.st_mode) &&
             (is_announced() || (changed_ns == nanoseconds(status.st_ctim) && inode == status.st_ino));
    case TreeEntry::Kind::kFile:
      break;
  }
  return S_ISREG(status.st_mode) && entry.size == static_cast<std::uint64_t>(status.st_size) &&
         modified_ns == nanoseconds(status.st_mtim) &&
         (is_announced() || (changed_ns == nanoseconds(status.st_ctim) && inode == status.st_ino));
}

TreeIndex load_index(const std::string& path) {
  auto index = decoded<TreeIndex>(text_of_file(path), "index", [](const TreeIndex& m) {
    return m.version == TreeIndex().version && std::all_of(m.entries.begin(), m.entries.end(), [](const auto& written) {
             return is_tree_path(written.entry.path);
           });
  });
  return index.ok() ? std::move(index).value() : TreeIndex();
}

Result<void> save_index(const std::string& path, const TreeIndex& index) {
  return replace_file(path, encoded(index), kIndexMode);
}

}  // namespace hvd::launch
