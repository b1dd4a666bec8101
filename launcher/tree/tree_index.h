// TreeIndex is what hvdrun remembers of a folder that it has put on a node: each entry, and how the file system
// described it when it was written. What does not look like that any more has been changed by somebody else.
//
// Value types.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/wire/tree_messages.h"

namespace hvd::launch {

struct WrittenEntry {
  TreeEntry entry;  // its hash is zero where the content was no longer that of the list
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;

  static void fields(auto& m, auto& walk) { walk(m.entry, m.modified_ns, m.changed_ns, m.inode); }
  // One that is about to be written: it may be there, as the list says, or not.
  static WrittenEntry announced(const TreeEntry& entry);
  [[nodiscard]] bool is_announced() const { return inode == 0; }
  // Takes the size too: a file that was growing may have another one than in the list.
  void describe(const struct stat& status);
  [[nodiscard]] bool looks_like(const struct stat& status) const;
};

struct TreeIndex {
  std::uint32_t version = 1;
  ContentHash digest{};  // of the list; zero: the folder is not as any list says
  std::vector<WrittenEntry> entries;

  static void fields(auto& m, auto& walk) { walk(m.version, m.digest, m.entries); }
};

// Returns an empty index where the file is not there, or is not one.
TreeIndex load_index(const std::string& path);
Result<void> save_index(const std::string& path, const TreeIndex& index);

}  // namespace hvd::launch
