// ResultWalk finds the files and links in a brought folder that ranks have made or changed and that fit the user's
// patterns (--sync-back). It looks at so many entries at a time, since a folder may have a million.
//
// Blocks for as long as the file system does. Thread: loop only.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <dirent.h>

#include "launcher/tree/ignore_rules.h"
#include "launcher/tree/tree_index.h"
#include "launcher/wire/tree_messages.h"

namespace hvd::launch {

class ResultWalk {
 public:
  // `brought` is what hvdrun has put there, and outlives the walk.
  ResultWalk(std::string root, const TreeIndex& brought, IgnoreRules patterns)
      : root_(std::move(root)), brought_(brought.entries), patterns_(std::move(patterns)), folders_{""} {}

  // Looks at the next entries, at most so many.
  void look_on(std::size_t entries);
  [[nodiscard]] bool is_over() const { return noted_ == brought_.size() && folder_ == nullptr && folders_.empty(); }
  // How many results were found and not taken.
  [[nodiscard]] std::size_t found() const { return found_.size(); }
  // Returns them with the folders in which they are; sorted by path.
  std::vector<TreeEntry> take();

 private:
  struct FolderClose {
    void operator()(DIR* folder) const { ::closedir(folder); }
  };

  void note_next();
  void enter_next();
  void look_at(const std::string& path);
  void add(const std::string& path, const struct stat& status);

  const std::string root_;
  const std::vector<WrittenEntry>& brought_;
  const IgnoreRules patterns_;
  std::size_t noted_ = 0;  // of brought_
  std::unordered_map<std::string_view, const WrittenEntry*> known_;
  std::vector<std::string> folders_;  // that were seen, and not looked into
  std::string at_;                    // the folder that is being looked into
  std::unique_ptr<DIR, FolderClose> folder_;
  std::map<std::string, TreeEntry> found_;
};

}  // namespace hvd::launch
