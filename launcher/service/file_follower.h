// FileFollower copies the contents of a file, and then whatever is added to it, each byte once.
//
// Thread: one at a time. It does not wait for changes; FolderWatch does.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class FileFollower {
 public:
  explicit FileFollower(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  // True when the file has been found.
  [[nodiscard]] bool has_found() const { return file_.is_open(); }
  // Copies everything new to `out`, and waits while the reader of `out` is slow. A file that does not exist yet is no
  // error. A file that became shorter (the job started again) is copied from its beginning, and so is one that has
  // taken the place of another (--output-rotate).
  Result<void> copy_new(int out);

 private:
  Result<void> open();
  Result<void> copy_rest(int out);
  [[nodiscard]] bool is_replaced() const;

  const std::string path_;
  Fd file_;
  std::uint64_t at_ = 0;
};

}  // namespace hvd::launch
