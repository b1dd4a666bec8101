#include "launcher/logs/rank_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include <stdio.h>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// More than this is not held until the end of the turn.
constexpr std::size_t kMostPending = 256U << 10U;
constexpr mode_t kMode = 0666;  // less the umask, as a shell's redirection

Result<Fd> open_file(const std::string& path, int how) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | how, kMode));
  if (!fd.is_open()) {
    return Error::from_errno("cannot write " + path);
  }
  return fd;
}

std::string padded(int rank, int size) {
  const std::string digits = std::to_string(rank);
  return std::string(std::to_string(size - 1).size() - digits.size(), '0') + digits;
}

}  // namespace

RankFiles::RankFiles(RankFilesOptions options, OnFailed on_failed)
    : options_(std::move(options)), on_failed_(std::move(on_failed)) {}

Result<std::unique_ptr<RankFiles>> RankFiles::create(RankFilesOptions options, int size, OnFailed on_failed) {
  std::unique_ptr<RankFiles> files(new RankFiles(std::move(options), std::move(on_failed)));
  for (int rank = 0; rank < size; ++rank) {
    const std::string dir = files->options_.dir + "/rank." + padded(rank, size);
    std::error_code failed;
    std::filesystem::create_directories(dir, failed);
    if (failed) {
      errno = failed.value();
      return Error::from_errno("--output-filename: cannot make the directory " + dir);
    }
    auto& both = files->files_.emplace_back();
    both[0].path = dir + "/stdout";
    both[1].path = dir + "/stderr";
    for (const File& file : both) {
      HVD_TRY_ASSIGN(const Fd emptied, open_file(file.path, O_TRUNC));
    }
  }
  return files;
}

void RankFiles::write(int rank, bool is_error, std::string_view prefix, std::string_view line) {
  File& file = files_[static_cast<std::size_t>(rank)][is_error ? 1 : 0];
  if (file.has_failed) {
    return;
  }
  file.pending.append(prefix).append(line);
  if (file.pending.size() > kMostPending) {
    flush_file(file);
  } else if (!file.is_queued) {
    file.is_queued = true;
    dirty_.push_back(&file);
  }
}

std::string RankFiles::folder_of(int rank) const {
  const auto& both = files_[static_cast<std::size_t>(rank)];
  const bool is_whole = !both[0].has_failed && !both[1].has_failed;
  return is_whole ? both[0].path.substr(0, both[0].path.rfind('/')) : "";
}

void RankFiles::flush() {
  for (File* file : std::exchange(dirty_, {})) {
    file->is_queued = false;
    flush_file(*file);
  }
}

void RankFiles::flush_file(File& file) {
  if (file.pending.empty()) {
    return;
  }
  if (const auto done = append(file); !done.ok()) {
    file.has_failed = true;
    if (!std::exchange(has_told_, true)) {
      on_failed_(done.error());
    }
  }
  file.pending.clear();
}

Result<void> RankFiles::append(File& file) {
  HVD_TRY(rotate_when_full(file));
  HVD_TRY_ASSIGN(const Fd fd, open_file(file.path, O_APPEND));
  std::string_view rest = file.pending;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd.get(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) {
      return Error::from_errno("cannot write " + file.path);
    }
    rest.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return {};
}

Result<void> RankFiles::rotate_when_full(const File& file) const {
  struct stat info{};
  if (options_.max_bytes == 0 || ::stat(file.path.c_str(), &info) != 0 || info.st_size == 0 ||
      static_cast<std::uint64_t>(info.st_size) + file.pending.size() <= options_.max_bytes) {
    return {};
  }
  if (::rename(file.path.c_str(), (file.path + ".1").c_str()) != 0) {
    return Error::from_errno("cannot rename " + file.path + " to " + file.path + ".1");
  }
  return {};
}

}  // namespace hvd::launch
