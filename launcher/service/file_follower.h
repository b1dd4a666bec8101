// FileFollower: what stands in a file now, and what is added to it, each byte once.
//
// Thread: one at a time. It does not wait; FolderWatch does.
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
  // It was there.
  [[nodiscard]] bool has_found() const { return file_.is_open(); }
  // Copies all that is new to `out`, waiting for whoever reads that. A file that is not there yet is no error. One that
  // was emptied (the job began anew) is shown from its beginning.
  Result<void> copy_new(int out);

 private:
  const std::string path_;
  Fd file_;
  std::uint64_t at_ = 0;
};

}  // namespace hvd::launch
