// scan_tree() finds out what of a folder of the user's is to be on the nodes (--sync): in a git repository what git
// shows as tracked or as not ignored, elsewhere everything but what version control keeps; and in both not what an
// .hvdignore file at the top of the folder leaves out.
//
// Blocks. Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/wire/tree_messages.h"
#include "runtime/base/result.h"

namespace hvd::launch {

inline constexpr const char* kIgnoreFile = ".hvdignore";
// What comes home from the nodes lies here in the folder, and does not travel.
inline constexpr const char* kResultsFolder = "synced-back";

// A folder as it was at one moment.
struct Tree {
  std::string root;                  // absolute
  std::string name;                  // of the folder that stands for it on a node: the same for every job from here
  std::vector<TreeEntry> entries;    // sorted by path; a folder stands before what is in it
  std::vector<ContentProof> proofs;  // of each entry, by its place in the list; zeros for what is no file
  GmacKey key{};                     // of the proofs
  ContentHash digest{};              // of the list; the times of changes are no part of it
  std::uint64_t bytes = 0;           // of all files
};

struct ScanOptions {
  std::vector<std::string> environment;  // for git
  // Absolute paths: files and folders that hvdrun itself writes. One that holds the folder as a whole does not count.
  std::vector<std::string> left_out;
};

// An error names the file that cannot be read, or says why the folder cannot be meant.
Result<Tree> scan_tree(const std::string& folder, const ScanOptions& options);

// True for the folder, and for all that is in it. Both are absolute.
bool lies_in(const std::string& path, const std::string& folder);

// Returns the way from the root to a folder in it: "" or "/src"; nothing for a folder elsewhere.
std::optional<std::string> way_within(const Tree& tree, const std::string& folder);

// The digest of a list.
ContentHash digest_of(const std::vector<TreeEntry>& entries);

}  // namespace hvd::launch
