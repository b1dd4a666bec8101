#include "launcher/tree/tree_portion.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// Few small files make a frame worth its head, and a frame of this size does not hold up the loop.
constexpr std::size_t kFrameBytes = 256U << 10U;
// Each file takes at least this much of a frame, because opening and making it costs more than its bytes.
constexpr std::size_t kLeastRoom = kFrameBytes / 128;

// Returns where data begins, at `offset` or after it, and where it ends again. A file system without holes says: here,
// and at the end. The file may have become shorter.
std::pair<std::uint64_t, std::uint64_t> next_data(const Fd& file, std::uint64_t offset, std::uint64_t end) {
  const off_t data = ::lseek(file.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) {
    return {errno == ENXIO ? end : offset, end};
  }
  const off_t hole = ::lseek(file.get(), data, SEEK_HOLE);
  return {std::min(static_cast<std::uint64_t>(data), end),
          hole < 0 ? end : std::min(static_cast<std::uint64_t>(hole), end)};
}

// True where no file has the name any more, but a link, or its folder has gone or is no folder. A file server says
// ESTALE of a file that was removed there.
bool means_gone(int code) {
  return code == ENOENT || code == ENOTDIR || code == ELOOP || code == ESTALE;
}

}  // namespace

Result<FilePortion> read_portion(const std::string& root, const std::vector<TreeEntry>& entries,
                                 const std::vector<std::uint32_t>& wanted, FilePlace place, std::size_t end,
                                 bool skips_unreadable) {
  FileBytes bytes;
  const std::unique_ptr<char[]> buffer(new char[kFrameBytes]);  // without zeros, which would be written over
  std::deque<std::string> reasons;
  std::size_t room = kFrameBytes;
  std::size_t used = 0;
  // Ends the present file as one that cannot be read, whatever has come of it.
  const auto give_up = [&](const Error& why, bool is_gone) -> Result<void> {
    if (!skips_unreadable && !is_gone) {
      return Error(why.code(), "--sync: " + why.message());
    }
    FilePiece piece;
    piece.is_end = piece.is_unreadable = true;
    piece.bytes = reasons.emplace_back(why.message());
    room -= std::min<std::size_t>(room, kLeastRoom);
    ++place.file;
    place.offset = 0;
    bytes.pieces.push_back(piece);
    return {};
  };
  while (room > 0 && place.file < end) {
    const TreeEntry& entry = entries[wanted[place.file]];
    const std::string path = root + "/" + entry.path;
    FilePiece piece;
    // Without waiting: what was a file may be a FIFO now.
    const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status{};
    const bool is_open = file.is_open() && ::fstat(file.get(), &status) == 0;
    if (!is_open || !S_ISREG(status.st_mode)) {
      const Error why = is_open ? Error(Code::kNotFound, "cannot read " + path + ": it is no file any more")
                                : Error::from_errno("cannot read " + path);
      HVD_TRY(give_up(why, is_open || means_gone(why.sys_errno())));
      continue;
    }
    // Of a file that grows meanwhile, no more is sent than it had.
    std::uint64_t data_end = entry.size;
    constexpr std::uint64_t kBlock = 512;  // what st_blocks counts in
    const auto length = static_cast<std::uint64_t>(status.st_size);
    if (entry.hash == ContentHash{} && static_cast<std::uint64_t>(status.st_blocks) * kBlock < length) {
      const std::uint64_t last = std::max(place.offset, std::min(entry.size, length));
      ::fdatasync(file.get());  // some file systems show a hole until they have written what is there
      const auto [data, hole] = next_data(file, place.offset, last);
      piece.hole = data - place.offset;
      place.offset = data;
      data_end = length < entry.size && hole == last ? entry.size : hole;
    }
    const std::size_t wished = std::min<std::uint64_t>(room, data_end - place.offset);
    char* const begin = buffer.get() + used;
    std::size_t filled = 0;
    std::optional<Error> failed;
    while (filled < wished && !failed) {
      const ssize_t got =
          ::pread(file.get(), begin + filled, wished - filled, static_cast<off_t>(place.offset + filled));
      if (got < 0 && errno != EINTR) {
        failed = Error::from_errno("cannot read " + path);
      }
      if (got == 0) {
        break;  // it has become shorter
      }
      filled += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    if (failed) {
      HVD_TRY(give_up(*failed, means_gone(failed->sys_errno())));
      continue;
    }
    piece.bytes = {begin, filled};
    place.offset += filled;
    used += filled;
    room -= filled;
    piece.is_end = filled < wished || place.offset == entry.size;
    if (piece.is_end) {
      ++place.file;
      place.offset = 0;
    }
    bytes.pieces.push_back(piece);
    room -= std::min<std::size_t>(room, kLeastRoom);
  }
  return FilePortion{bytes.encode(), place};
}

}  // namespace hvd::launch
