// RankFiles keeps what each rank printed in DIR/rank.N/stdout and DIR/rank.N/stderr (N padded with zeros), in the
// layout of horovodrun's --output-filename.
//
// A file is open only while it is written. So a job of 1,000 ranks needs no descriptors for its files, and a directory
// that is removed, or a disk that fills up, is noticed. What cannot be written is reported once and dropped; the job
// goes on.
// Thread: loop only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

struct RankFilesOptions {
  std::string dir;
  // A file that would grow beyond this becomes NAME.1, the earlier NAME.1 becomes NAME.2, and so on; 0: no limit. Files
  // are cut between lines, so only a single longer line makes a longer file.
  std::uint64_t max_bytes = 0;
  int old_files = 1;  // how many rotated files are kept
  // [rank][is_error]: files in `dir` that take the place of rank.N/stdout and rank.N/stderr. Ranks that share a file
  // write whole lines into it as they come. Ranks that join later share those of the last one.
  std::vector<std::array<std::string, 2>> names{};
  // The ranks were started before: what their files have stays, and this line follows it. Empty: files are emptied.
  std::string marker{};
  int named_for = 0;  // names of folders have the digits for so many ranks; 0: for those that there are
};

// Returns the name of a rank's folder, with the digits for `named_for` ranks: "rank.03".
std::string rank_folder(int rank, int named_for);
// True for the name of any rank's folder.
bool is_rank_folder(std::string_view name);
// Stacks of the ranks are kept in this file beside their folders (launcher/run).
inline constexpr const char* kStacksFile = "stacks.txt";

class RankFiles {
 public:
  using OnFailed = std::function<void(const Error&)>;  // called from flush() or write(), at most once

  // Makes the directories and the files.
  static Result<std::unique_ptr<RankFiles>> create(RankFilesOptions options, int size, OnFailed on_failed);

  // The ranks start. Unless there is a marker, what an earlier job has left in the files is dropped, and so are its
  // rotated files where there is a limit. The first write() does this, too.
  void begin();
  // So many ranks more have joined the job. Their folders have as many digits as the first ones'. Where it fails, what
  // they print is not kept.
  Result<void> add_ranks(int count);
  void write(int rank, bool is_error, std::string_view prefix, std::string_view line);
  // Returns the folder of a rank; empty when one of its files cannot be written any more.
  [[nodiscard]] std::string folder_of(int rank) const;
  // Writes everything to the files. Called at the end of a turn rather than per line.
  void flush();

 private:
  struct File {
    std::string path;
    std::string pending;
    bool is_queued = false;  // in dirty_
    bool has_failed = false;
  };

  RankFiles(RankFilesOptions options, OnFailed on_failed);
  Result<File*> add_file(const std::string& path);
  Result<void> drop_earlier(const std::string& path) const;
  void fail(File& file, const Error& why);
  Result<void> append(File& file) const;
  // Returns the part of `rest` that goes into the file now: all, or the lines that fit. A file with no room for one
  // line is rotated first.
  Result<std::string_view> fit(const File& file, std::string_view rest) const;
  Result<void> rotate(const File& file) const;
  void flush_file(File& file);

  const RankFilesOptions options_;
  bool has_begun_ = false;
  int width_ = 0;  // how many ranks the names of folders are made for
  const OnFailed on_failed_;
  std::deque<File> files_;
  std::vector<std::array<File*, 2>> of_ranks_;  // [rank][is_error]
  std::vector<File*> dirty_;
  bool has_told_ = false;
};

}  // namespace hvd::launch
