// RankFiles: what each rank printed, kept in DIR/rank.N/stdout and DIR/rank.N/stderr (N padded with zeros), as
// horovodrun's --output-filename lays it out.
//
// A file is open only while it is written: so a job of 1,000 ranks needs no descriptors for it, and a directory that is
// removed, or a disk that fills up, is noticed. What cannot be written is told once and dropped; the job goes on.
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
  // A file that would grow beyond this becomes NAME.1, the NAME.1 of before NAME.2, and so on; 0: no limit. Files are
  // cut between lines, so only a line that is longer alone makes a longer file.
  std::uint64_t max_bytes = 0;
  int old_files = 1;  // that many are kept
  // [rank][is_error]: files in `dir` in place of rank.N/stdout and rank.N/stderr; ranks that share one write whole
  // lines into it as they come.
  std::vector<std::array<std::string, 2>> names{};
};

class RankFiles {
 public:
  using OnFailed = std::function<void(const Error&)>;  // called from flush() or write(), at most once

  // Makes the directories, empties files that are there, and where there is a limit removes old ones.
  static Result<std::unique_ptr<RankFiles>> create(RankFilesOptions options, int size, OnFailed on_failed);

  void write(int rank, bool is_error, std::string_view prefix, std::string_view line);
  // Of a rank; empty when one of its files cannot be written any more.
  [[nodiscard]] std::string folder_of(int rank) const;
  // Everything to the files. Called at the end of a turn rather than per line.
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
  Result<void> append(File& file) const;
  // What of `rest` goes into the file now: all, or the lines that fit; the file has made room where none did.
  Result<std::string_view> fit(const File& file, std::string_view rest) const;
  Result<void> rotate(const File& file) const;
  void flush_file(File& file);

  const RankFilesOptions options_;
  const OnFailed on_failed_;
  std::deque<File> files_;
  std::vector<std::array<File*, 2>> of_ranks_;  // [rank][is_error]
  std::vector<File*> dirty_;
  bool has_told_ = false;
};

}  // namespace hvd::launch
