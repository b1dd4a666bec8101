// TreeWriter makes the files of a TreeFolder those of a list: it removes what an earlier list had and this one has not,
// makes folders and links, and writes the files that are new or were changed. What is in the folder and in neither list
// is somebody else's, and stays. Nothing is written through a link, wherever it leads.
//
// Long work is done in portions, so that the caller's event loop goes on in between.
//
// Thread: loop only. Blocks for a portion, or a file's piece, at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/tree/tree_index.h"
#include "launcher/tree/tree_portion.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/gmac.h"

namespace hvd::launch {

// Returns a text of 16 characters that no other process gets: for the name that a file has until all of it has come.
// Two that write into one folder then write files of their own.
std::string tag_of_writer();

// ChangedFiles is what is told of the files that came with another content than the list's, since they were changed, or
// that were gone.
struct ChangedFiles {
  std::string first;  // empty: there is none
  std::uint32_t others = 0;

  void note(const std::string& path) {
    others += first.empty() ? 0U : 1U;
    first = first.empty() ? path : first;
  }
};

class TreeWriter {
 public:
  // Whose rights files get: those of the list, or of these what the umask leaves.
  enum class Way : std::uint8_t { kAsListed, kAsUmask };
  // The folders are the caller's.
  struct Place {
    int files;         // the folder
    std::string path;  // names it in errors
    int parts;         // on the same file system: here a file is until all of it has come, and it takes its name
    std::string part;  // the file's name until then
  };

  // `before` is what was written there.
  TreeWriter(Place place, TreeIndex before, std::shared_ptr<const std::vector<TreeEntry>> list, Way way);
  ~TreeWriter();
  TreeWriter(const TreeWriter&) = delete;
  TreeWriter& operator=(const TreeWriter&) = delete;

  // Checks what comes by these proofs, of each entry of the list. Without them, whatever comes is as it should be.
  void check_by(Gmac mac, std::vector<ContentProof> proofs) {
    mac_ = std::move(mac);
    proofs_ = std::move(proofs);
  }
  // Does the next portion. True: all is done but the contents of the files that wanted() names. An error is that of one
  // entry; the next call goes on after it.
  Result<bool> prepare();
  // Places in the list, in its order.
  [[nodiscard]] const std::vector<std::uint32_t>& wanted() const { return wanted_; }
  // Writes more of the first wanted file that has not ended. kProtocol: it is more than the list says.
  Result<void> write(const FilePiece& piece);
  // The first wanted file does not come.
  void skip();
  // The first wanted file has gone where it comes from. So it goes here too, and counts as changed.
  void lose();
  [[nodiscard]] bool has_all() const { return next_ == wanted_.size(); }
  // How far the wanted files have come.
  [[nodiscard]] FilePlace arrived() const { return {next_, file_.is_open() ? file_bytes_ : 0}; }
  // The wanted files that have not come, after what has come of one was dropped.
  std::vector<std::uint32_t> begin_rest();
  // The first place in the list whose content is missing; all before it are there.
  [[nodiscard]] std::size_t first_missing() const { return has_all() ? list_.size() : wanted_[next_]; }
  [[nodiscard]] const std::vector<TreeEntry>& list() const { return list_; }
  [[nodiscard]] std::shared_ptr<const std::vector<TreeEntry>> whole_list() const { return whole_list_; }
  [[nodiscard]] std::uint32_t removed() const { return removed_; }
  [[nodiscard]] const ChangedFiles& changed() const { return changed_; }
  // Returns what is there now. `digest` says what it is when all is there.
  [[nodiscard]] TreeIndex index(const ContentHash& digest) const;

 private:
  void remove(const WrittenEntry& written);
  Result<void> place(std::uint32_t number);
  Result<void> place_folder(const TreeEntry& entry);
  Result<void> place_link(const TreeEntry& entry);
  Result<bool> place_file(const TreeEntry& entry);
  Result<void> begin_file(const TreeEntry& entry);
  Result<void> leave_hole(const TreeEntry& entry, const FilePiece& piece);
  Result<void> end_file(const TreeEntry& entry);
  Result<mode_t> rights_given(const TreeEntry& entry);
  Result<void> name_part(const TreeEntry& entry);
  void drop_part();
  // Opens the folder in which the entry is, and keeps it for the next one there.
  Result<std::pair<int, std::string>> parent_of(const std::string& path);
  // Removes a file or a link, or a folder with nothing in it, that is where the entry is to be.
  Result<void> make_room(int parent, const std::string& name, const std::string& path);
  void note(const TreeEntry& entry, const struct stat& status);
  [[nodiscard]] Error error_at(const std::string& path) const;

  const Place place_;
  const Way way_;
  const std::shared_ptr<const std::vector<TreeEntry>> whole_list_;
  const std::vector<TreeEntry>& list_;
  std::unordered_map<std::string, WrittenEntry> before_;
  std::vector<const WrittenEntry*> gone_;  // entries of before_ that are not in the list; the deepest last
  std::vector<WrittenEntry> written_;
  std::size_t cursor_ = 0;
  bool has_failed_ = false;  // some entry could not take its place
  std::vector<std::uint32_t> wanted_;
  std::size_t next_ = 0;  // of wanted_
  std::uint32_t removed_ = 0;
  ChangedFiles changed_;
  Fd file_;
  std::uint64_t file_bytes_ = 0;  // written of it
  std::optional<Gmac> mac_;       // of these
  std::vector<ContentProof> proofs_;
  std::map<mode_t, mode_t> rights_given_;
  std::string parent_path_;
  Fd parent_;  // not open: the folder itself is the parent
};

}  // namespace hvd::launch
