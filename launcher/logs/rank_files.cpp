#include "launcher/logs/rank_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <stdio.h>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// More than this is not held back until the end of the turn.
constexpr std::size_t kMostPending = 256U << 10U;
constexpr mode_t kMode = 0666;  // less the umask, as for a shell's redirection

Result<Fd> open_file(const std::string& path, int how) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | how, kMode));
  if (!fd.is_open()) {
    return Error::from_errno("cannot write " + path);
  }
  return fd;
}

std::string old_name(const std::string& path, int number) {
  return path + "." + std::to_string(number);
}

// Removes rotated files of an earlier job, which would be taken for this one's.
void remove_old(const std::string& path) {
  for (int number = 1; ::unlink(old_name(path, number).c_str()) == 0; ++number) {
  }
}

// Returns the lines of `text` that fit into `room` bytes; a line ends with "\n", or with "\r" where a bar was drawn.
std::string_view whole_lines(std::string_view text, std::uint64_t room) {
  if (room >= text.size()) {
    return text;
  }
  const std::string_view beginning = text.substr(0, room);
  auto end = beginning.find_last_of("\r\n");
  if (end + 1 == room && end != std::string_view::npos && text[end] == '\r' && text[end + 1] == '\n') {
    end = end == 0 ? std::string_view::npos : beginning.find_last_of("\r\n", end - 1);  // not between the two
  }
  return text.substr(0, end + 1);
}

std::string_view first_line(std::string_view text) {
  const auto end = text.find_first_of("\r\n");
  const bool is_pair = end != std::string_view::npos && text.substr(end).starts_with("\r\n");
  return text.substr(0, end == std::string_view::npos ? end : end + (is_pair ? 2 : 1));
}

}  // namespace

RankFiles::RankFiles(RankFilesOptions options, OnFailed on_failed)
    : options_(std::move(options)), on_failed_(std::move(on_failed)) {}

std::string rank_folder(int rank, int named_for) {
  const std::string digits = std::to_string(rank);
  const std::size_t width = std::to_string(named_for - 1).size();
  return "rank." + std::string(width - std::min(width, digits.size()), '0') +
         digits;  // ranks that joined may need more
}

bool is_rank_folder(std::string_view name) {
  constexpr std::string_view kBegin = "rank.";
  return name.starts_with(kBegin) && name.size() > kBegin.size() &&
         name.find_first_not_of("0123456789", kBegin.size()) == std::string_view::npos;
}

Result<std::unique_ptr<RankFiles>> RankFiles::create(RankFilesOptions options, int size, OnFailed on_failed) {
  std::unique_ptr<RankFiles> files(new RankFiles(std::move(options), std::move(on_failed)));
  files->width_ = files->options_.named_for > 0 ? files->options_.named_for : size;
  HVD_TRY(files->add_ranks(size));
  return files;
}

Result<void> RankFiles::add_ranks(int count) {
  Result<void> added;
  const int end = static_cast<int>(of_ranks_.size()) + count;
  for (int rank = static_cast<int>(of_ranks_.size()); rank < end; ++rank) {
    const auto& names = options_.names;
    const std::string folder = names.empty() ? rank_folder(rank, width_) + "/" : "";
    const std::array<std::string, 2> own = names.empty()
                                               ? std::array<std::string, 2>{folder + "stdout", folder + "stderr"}
                                               : names[std::min(static_cast<std::size_t>(rank), names.size() - 1)];
    auto& both = of_ranks_.emplace_back();
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::string path = options_.dir + "/" + own[i];
      const auto file = add_file(path);
      if (!file.ok()) {
        added = added.ok() ? file.error() : added.error();
        files_.push_back(File{path, "", false, true});
      }
      both[i] = file.ok() ? file.value() : &files_.back();
    }
  }
  return added;
}

Result<RankFiles::File*> RankFiles::add_file(const std::string& path) {
  const auto same = std::find_if(files_.begin(), files_.end(), [&path](const File& file) { return file.path == path; });
  if (same != files_.end()) {
    return &*same;
  }
  const std::string dir = path.substr(0, path.rfind('/'));
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) {
    return Error::from_errno("cannot make the directory " + dir + " for what the ranks print", failed.value());
  }
  if (has_begun_) {
    HVD_TRY(drop_earlier(path));
  } else {
    HVD_TRY_ASSIGN(const Fd opened, open_file(path, O_APPEND));
  }
  File& file = files_.emplace_back(File{path, "", false, false});
  if (!options_.marker.empty()) {
    file.pending = options_.marker + "\n";
    file.is_queued = true;
    dirty_.push_back(&file);
  }
  return &file;
}

Result<void> RankFiles::drop_earlier(const std::string& path) const {
  const bool is_new = options_.marker.empty();
  HVD_TRY_ASSIGN(const Fd opened, open_file(path, is_new ? O_TRUNC : O_APPEND));
  if (is_new && options_.max_bytes > 0) {
    remove_old(path);
  }
  return {};
}

void RankFiles::begin() {
  if (std::exchange(has_begun_, true)) {
    return;
  }
  for (File& file : files_) {
    if (const auto dropped = file.has_failed ? Result<void>() : drop_earlier(file.path); !dropped.ok()) {
      fail(file, dropped.error());
    }
  }
}

void RankFiles::write(int rank, bool is_error, std::string_view prefix, std::string_view line) {
  begin();
  File& file = *of_ranks_[static_cast<std::size_t>(rank)][is_error ? 1 : 0];
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
  const auto& both = of_ranks_[static_cast<std::size_t>(rank)];
  const bool is_whole = !both[0]->has_failed && !both[1]->has_failed;
  return is_whole ? both[0]->path.substr(0, both[0]->path.rfind('/')) : "";
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
    fail(file, done.error());
  }
  file.pending.clear();
}

void RankFiles::fail(File& file, const Error& why) {
  file.has_failed = true;
  if (!std::exchange(has_told_, true)) {
    on_failed_(why);
  }
}

Result<void> RankFiles::append(File& file) const {
  std::string_view rest = file.pending;
  while (!rest.empty()) {
    HVD_TRY_ASSIGN(std::string_view now, fit(file, rest));
    rest.remove_prefix(now.size());
    HVD_TRY_ASSIGN(const Fd fd, open_file(file.path, O_APPEND));
    while (!now.empty()) {
      const ssize_t written = ::write(fd.get(), now.data(), now.size());
      if (written < 0 && errno != EINTR) {
        return Error::from_errno("cannot write " + file.path);
      }
      now.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
    }
  }
  return {};
}

Result<std::string_view> RankFiles::fit(const File& file, std::string_view rest) const {
  if (options_.max_bytes == 0) {
    return rest;
  }
  struct stat info{};
  const std::uint64_t size = ::stat(file.path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
  const std::uint64_t room = options_.max_bytes - std::min(options_.max_bytes, size);
  if (rest.size() <= room) {
    return rest;
  }
  if (const auto lines = whole_lines(rest, room); !lines.empty()) {
    return lines;
  }
  if (size > 0) {
    HVD_TRY(rotate(file));
  }
  const auto lines = whole_lines(rest, options_.max_bytes);
  return lines.empty() ? first_line(rest) : lines;
}

Result<void> RankFiles::rotate(const File& file) const {
  for (int number = options_.old_files - 1; number >= 0; --number) {
    const std::string from = number == 0 ? file.path : old_name(file.path, number);
    const std::string to = old_name(file.path, number + 1);
    if (::rename(from.c_str(), to.c_str()) != 0 && (errno != ENOENT || number == 0)) {
      return Error::from_errno(std::string("cannot rename ").append(from).append(" to ").append(to));
    }
  }
  return {};
}

}  // namespace hvd::launch
