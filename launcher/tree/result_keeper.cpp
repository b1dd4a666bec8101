#include "launcher/tree/result_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostReason = 1000;           // bytes of a node's text
constexpr std::size_t kMostLost = 10;               // files that are named, one by one, before their node's results end
constexpr std::string_view kPart = ".hvdrun-part";  // how names of files begin of which not all has come
constexpr auto kOldPart = std::chrono::hours(1);    // that nobody has written to for so long is left of somebody killed
constexpr mode_t kFolderMode = 0777;                // as the umask allows, like the ranks' output

Result<void> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return Error::from_errno("--sync-back: " + path);
  }
  return {};
}

// Removes what is left of those who were killed. A part's own time is its file's, so the time of its last change of any
// kind counts, which nobody can set.
void remove_old_parts(const std::string& folder) {
  std::error_code failed;
  std::filesystem::directory_iterator entry(folder, failed);
  for (const std::filesystem::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    struct stat status{};
    const std::string path = entry->path();
    if (entry->path().filename().string().starts_with(kPart) && ::lstat(path.c_str(), &status) == 0 &&
        std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(status.st_ctim.tv_sec) > kOldPart) {
      ::unlink(path.c_str());
    }
  }
}

// Whatever a node says, this ends: it could go on for ever.
Result<void> take_room(std::uint64_t& room, std::uint64_t bytes) {
  if (bytes > room) {
    return Error(Code::kResource, "--sync-back: it sends more results than this disk has room for");
  }
  room -= bytes;
  return {};
}

}  // namespace

Result<void> ResultKeeper::on_message(int number, const std::string& name, AgentMessage type, std::string_view body) {
  Node& node = nodes_[number];
  Result<void> done;
  if (!node.has_failed) {
    done = type == AgentMessage::kResultList ? on_list(number, node, name, body) : on_bytes(number, node, body);
  }
  const bool fails = !done.ok() && done.error().code() != Code::kProtocol;
  node.has_failed = node.has_failed || fails;
  node.ends = node.has_failed ? ResultCredit::kNothing : node.ends;
  sink_.send(number, AgentMessage::kResultCredit, ResultCredit{body.size(), std::exchange(node.ends, {})}.encode());
  if (fails) {
    node.writer.reset();
    sink_.on_failed(number, done.error());
    return {};
  }
  return done;
}

Result<void> ResultKeeper::on_list(int number, Node& node, const std::string& name, std::string_view body) {
  HVD_TRY_ASSIGN(TreeList list, TreeList::decode(body));
  if (!list.is_last || list.entries.empty() || node.is_dropping ||
      (node.writer != nullptr && !node.writer->has_all())) {
    return Error(Code::kProtocol, "its agent names results before it has sent others");
  }
  if (!node.folder.is_open()) {
    HVD_TRY(open_folder(node, name));
  }
  HVD_TRY(take_room(node.room, list.entries.size() * kFileWorth));
  node.writer = std::make_unique<TreeWriter>(
      TreeWriter::Place{node.folder.get(), node.path, node.folder.get(), node.part}, TreeIndex(),
      std::make_shared<const std::vector<TreeEntry>>(std::move(list.entries)), TreeWriter::Way::kAsUmask);
  for (;;) {
    const auto is_prepared = node.writer->prepare();
    if (is_prepared.ok() && is_prepared.value()) {
      return {};
    }
    if (!is_prepared.ok()) {
      HVD_TRY(count_lost(node, is_prepared.error()));
      sink_.on_missed(number, is_prepared.error());
    }
  }
}

Result<void> ResultKeeper::open_folder(Node& node, const std::string& name) {
  HVD_TRY(make_folder(folder_));
  node.path = folder_ + "/" + (is_tree_path(name) && name.find('/') == std::string::npos ? name : "node");
  HVD_TRY(make_folder(node.path));
  node.folder = Fd(::open(node.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!node.folder.is_open()) {
    return Error::from_errno("--sync-back: " + node.path);
  }
  if (!names_.contains(name)) {
    remove_old_parts(node.path);
  }
  node.part = std::string(kPart) + "-" + tag_of_writer();
  // So much at most, whatever a node says: it could go on for ever. A file that is lost may have filled the disk
  // before.
  struct statvfs disk{};
  if (::fstatvfs(node.folder.get(), &disk) != 0) {
    return Error::from_errno("--sync-back: " + node.path);
  }
  constexpr std::uint64_t kUnknown = std::uint64_t{1} << 50U;  // some file systems do not tell their size
  const std::uint64_t size = disk.f_blocks == 0 ? kUnknown : std::uint64_t{disk.f_blocks} * disk.f_frsize;
  node.room = std::min(size, kUnknown) * (kMostLost + 2);
  names_.insert(name);
  return {};
}

Result<void> ResultKeeper::on_bytes(int number, Node& node, std::string_view body) {
  if (node.writer == nullptr) {
    return Error(Code::kProtocol, "its agent sends results that it has not named");
  }
  HVD_TRY_ASSIGN(const FileBytes bytes, FileBytes::decode(body));
  for (const FilePiece& piece : bytes.pieces) {
    HVD_TRY(on_piece(number, node, piece));
    node.ended += piece.is_end ? 1 : 0;
  }
  return {};
}

Result<void> ResultKeeper::on_piece(int number, Node& node, const FilePiece& piece) {
  // A hole takes no room, but somebody could send small ones for ever.
  HVD_TRY(take_room(node.room, piece.bytes.size() + std::min(piece.hole, kFileWorth)));
  if (node.is_dropping) {
    node.is_dropping = !piece.is_end;
    return {};
  }
  if (piece.is_unreadable) {
    if (node.writer->has_all()) {
      return Error(Code::kProtocol, "a result that was not named");
    }
    node.writer->skip();
    sink_.on_missed(number, Error(Code::kResource, "--sync-back: " + std::string(piece.bytes.substr(0, kMostReason))));
    return {};
  }
  if (const auto written = node.writer->write(piece); !written.ok()) {
    return written.error().code() == Code::kProtocol ? written : lose_file(number, node, piece.is_end, written.error());
  }
  bytes_ += piece.bytes.size();
  files_ += piece.is_end ? 1 : 0;
  return {};
}

Result<void> ResultKeeper::count_lost(Node& node, const Error& why) {
  return ++node.lost > kMostLost
             ? Error(why.code(), why.message() + "; neither could " + counted(kMostLost, "file") + " before")
             : Result<void>();
}

Result<void> ResultKeeper::lose_file(int number, Node& node, bool has_ended, const Error& why) {
  HVD_TRY(count_lost(node, why));
  node.writer->skip();
  sink_.on_missed(number, why);
  if (!has_ended) {
    node.is_dropping = true;
    node.ends = node.ended;
  }
  return {};
}

std::string ResultKeeper::summary() const {
  return names_.empty() ? ""
                        : counted(files_, "file") + " (" + std::to_string(bytes_) + " bytes) of " +
                              counted(names_.size(), "node") + (files_ == 1 ? " is in " : " are in ") + folder_;
}

}  // namespace hvd::launch
