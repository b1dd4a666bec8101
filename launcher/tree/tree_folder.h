// TreeFolder is the folder on a node that stands for one of the user's (--sync), held by a job. It lies in the user's
// cache folder:
//
//   ~/.cache/hvdrun/folders/NAME/files   what hvdrun has put there, and what ranks have added
//   ~/.cache/hvdrun/folders/NAME/index   what hvdrun has put there (tree_index.h)
//   ~/.cache/hvdrun/folders/NAME/*.part  a file of which not all has come
//   ~/.cache/hvdrun/folders/NAME/lock    locked for reading by each job that uses it, for writing by one that changes
//   it, which writes there who it is
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

struct TakenFolder;

class TreeFolder {
 public:
  struct Wish {
    std::string place;
    std::string name;
    std::vector<ContentHash> states;
    std::string who{};  // names this agent to those that wait for it: "pid 17 on node1"
    int number = 1;     // the first that is looked at
  };

  // Takes the first folder of that name in the place that this job may change, or that is in use in one of these
  // states.
  static Result<TakenFolder> take(const Wish& wish);

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
  // Tells those that find the lock taken. It is a help for the user alone, so that it may fail.
  void sign_lock(const std::string& who) const;
  [[nodiscard]] std::string signature_of_lock() const;

  std::string path_;
  std::string files_path_;
  int number_ = 1;
  bool may_change_ = false;
  Fd lock_;
  Fd parts_;
  Fd files_;
  TreeIndex index_;
};

// Without a folder another agent is just changing it: ask again.
struct TakenFolder {
  std::optional<TreeFolder> folder;
  std::string path{};    // of the folder that is being changed
  std::string holder{};  // who changes it, as that one says; empty: it does not
};

// Returns where such folders lie, made if it is not there: in the user's cache folder, as the environment names it.
Result<std::string> tree_place(const std::vector<std::string>& environment);

}  // namespace hvd::launch
