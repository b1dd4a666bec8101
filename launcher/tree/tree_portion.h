// read_portion() reads the next bytes of a list of files, in the form in which they travel.
//
// Blocks for as long as reading takes. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/wire/tree_messages.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// How far a reader has got.
struct FilePlace {
  std::size_t file = 0;      // of the wanted ones
  std::uint64_t offset = 0;  // in that file

  bool operator==(const FilePlace&) const = default;
};

struct FilePortion {
  std::string body;  // of FileBytes
  FilePlace next;
};

// `wanted` are places in `entries`, which are all files; the portion ends before the wanted file of number `end` at the
// latest, and `place` is before that. A file that is gone is a piece that says so. One that is there and cannot be read
// is an error, or with `skips_unreadable` such a piece too. Holes of a file are left out where the list has no hash of
// it: only who need not hash it can pass over them.
Result<FilePortion> read_portion(const std::string& root, const std::vector<TreeEntry>& entries,
                                 const std::vector<std::uint32_t>& wanted, FilePlace place, std::size_t end,
                                 bool skips_unreadable = false);

}  // namespace hvd::launch
