#include "launcher/tree/tree_portion.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// Few small files make a frame worth its head, and a frame of this size does not hold up the loop.
constexpr std::size_t kFrameBytes = 256U << 10U;
// Each file takes at least this much of a frame, because opening and making it costs more than its bytes.
constexpr std::size_t kLeastRoom = kFrameBytes / 128;

}  // namespace

Result<FilePortion> read_portion(const std::string& root, const std::vector<TreeEntry>& entries,
                                 const std::vector<std::uint32_t>& wanted, FilePlace place, std::size_t end,
                                 bool skips_unreadable) {
  FileBytes bytes;
  std::size_t room = kFrameBytes;
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
      if (!skips_unreadable) {
        return Error(why.code(), "--sync: " + why.message());
      }
      piece.is_end = piece.is_unreadable = true;
      piece.bytes = why.message();
      room -= std::min<std::size_t>(room, kLeastRoom);
      ++place.file;
      place.offset = 0;
      bytes.pieces.push_back(std::move(piece));
      continue;
    }
    // Of a file that grows meanwhile, no more is sent than it had.
    piece.bytes.resize(std::min<std::uint64_t>(room, entry.size - place.offset));
    std::size_t filled = 0;
    while (filled < piece.bytes.size()) {
      const ssize_t got = ::pread(file.get(), piece.bytes.data() + filled, piece.bytes.size() - filled,
                                  static_cast<off_t>(place.offset + filled));
      if (got < 0 && errno != EINTR) {
        return Error::from_errno("--sync: cannot read " + path);
      }
      if (got == 0) {
        break;  // it has become shorter
      }
      filled += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    const bool is_short = filled < piece.bytes.size();
    piece.bytes.resize(filled);
    place.offset += filled;
    room -= filled;
    piece.is_end = is_short || place.offset == entry.size;
    if (piece.is_end) {
      ++place.file;
      place.offset = 0;
    }
    bytes.pieces.push_back(std::move(piece));
    room -= std::min<std::size_t>(room, kLeastRoom);
  }
  return FilePortion{bytes.encode(), place};
}

}  // namespace hvd::launch
