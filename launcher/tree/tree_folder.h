// TreeFolder is the folder on a node that stands for one of the user's (--sync), held by a job. It lies in the user's
// cache folder:
//
//   ~/.cache/hvdrun/folders/NAME/files   what hvdrun has put there, and what ranks have added
//   ~/.cache/hvdrun/folders/NAME/index   what hvdrun has put there (tree_index.h)
//   ~/.cache/hvdrun/folders/NAME/*.part  a file of which not all has come
//   ~/.cache/hvdrun/folders/NAME/lock    locked for reading by each job that uses it, for writing by one that changes
//   it
//
// A folder that another job uses in another state is left alone: then the next of NAME, NAME.2, NAME.3 is taken. So a
// job finds what earlier ones have left there, and never changes what another one reads.
//
// Value type, move-only. Blocks for as long as the file system does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/tree/tree_index.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class TreeFolder {
 public:
  // Takes the first folder of that name in `place`, from the given number on, that this job may change, or that is in
  // use in one of these states. Nothing: another agent is just changing it; ask again.
  static Result<std::optional<TreeFolder>> take(const std::string& place, const std::string& name,
                                                const std::vector<ContentHash>& states, int number = 1);

  // Returns the absolute path of its files.
  [[nodiscard]] const std::string& path() const { return files_path_; }
  [[nodiscard]] int files() const { return files_.get(); }
  // The folder around it, for what is not complete.
  [[nodiscard]] int parts() const { return parts_.get(); }
  [[nodiscard]] int number() const { return number_; }
  // No other job uses it.
  [[nodiscard]] bool may_change() const { return may_change_; }
  [[nodiscard]] const TreeIndex& index() const { return index_; }
  // Keeps on the disk that what is new in this list may come from now on. So whoever comes after a kill knows of it.
  [[nodiscard]] Result<void> announce(const std::vector<TreeEntry>& list) const;
  // From then on other jobs may use the folder too, and nobody may change it. The first form keeps a new index.
  Result<void> share(TreeIndex index);
  Result<void> share();

 private:
  TreeFolder() = default;

  std::string path_;
  std::string files_path_;
  int number_ = 1;
  bool may_change_ = false;
  Fd lock_;
  Fd parts_;
  Fd files_;
  TreeIndex index_;
};

// Returns where such folders lie, made if it is not there: in the user's cache folder, as the environment names it.
Result<std::string> tree_place(const std::vector<std::string>& environment);

}  // namespace hvd::launch
