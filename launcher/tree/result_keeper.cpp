#include "launcher/tree/result_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <iterator>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostReason = 1000;  // bytes of a node's text
constexpr const char* kPart = ".hvdrun-part";
constexpr mode_t kFolderMode = 0777;  // as the umask allows, like the ranks' output

Result<void> make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
    return Error::from_errno("--sync-back: " + path);
  }
  return {};
}

}  // namespace

Result<void> ResultKeeper::on_message(int number, const std::string& name, AgentMessage type, std::string_view body) {
  Node& node = nodes_[number];
  Result<void> done;
  if (!node.has_failed) {
    done = type == AgentMessage::kResultList ? on_list(node, name, body) : on_bytes(number, node, body);
  }
  sink_.send(number, AgentMessage::kResultCredit, count_body(body.size()));
  if (!done.ok() && done.error().code() != Code::kProtocol) {
    node.has_failed = true;
    node.writer.reset();
    sink_.on_failed(number, done.error());
    return {};
  }
  return done;
}

Result<void> ResultKeeper::on_list(Node& node, const std::string& name, std::string_view body) {
  HVD_TRY_ASSIGN(TreeList list, TreeList::decode(body));
  if (!list.is_last || list.entries.empty() || (node.writer != nullptr && !node.writer->has_all())) {
    return Error(Code::kProtocol, "its agent names results before it has sent others");
  }
  if (!node.folder.is_open()) {
    HVD_TRY(open_folder(node, name));
  }
  for (const TreeEntry& entry : list.entries) {
    if (entry.size > node.room || node.room - entry.size < kFileWorth) {
      return Error(Code::kResource, "--sync-back: it names more results than this disk has room for");
    }
    node.room -= entry.size + kFileWorth;
  }
  node.writer = std::make_unique<TreeWriter>(
      TreeWriter::Place{node.folder.get(), node.path, node.folder.get(), kPart}, TreeIndex(),
      std::make_shared<const std::vector<TreeEntry>>(std::move(list.entries)), TreeWriter::Way::kAsUmask);
  for (;;) {
    HVD_TRY_ASSIGN(const bool is_prepared, node.writer->prepare());
    if (is_prepared) {
      return {};
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
  // So much at most, whatever a node says: it could go on for ever.
  struct statvfs disk{};
  if (::fstatvfs(node.folder.get(), &disk) != 0) {
    return Error::from_errno("--sync-back: " + node.path);
  }
  constexpr std::uint64_t kUnknown = std::uint64_t{1} << 50U;  // some file systems do not tell their size
  node.room = disk.f_blocks == 0 ? kUnknown : std::uint64_t{disk.f_blocks} * disk.f_frsize;
  names_.insert(name);
  return {};
}

Result<void> ResultKeeper::on_bytes(int number, Node& node, std::string_view body) {
  if (node.writer == nullptr) {
    return Error(Code::kProtocol, "its agent sends results that it has not named");
  }
  HVD_TRY_ASSIGN(const FileBytes bytes, FileBytes::decode(body));
  for (const FilePiece& piece : bytes.pieces) {
    if (piece.is_unreadable) {
      if (node.writer->has_all()) {
        return Error(Code::kProtocol, "a result that was not named");
      }
      node.writer->skip();
      sink_.on_missed(number, Error(Code::kResource, "--sync-back: " + piece.bytes.substr(0, kMostReason)));
      continue;
    }
    HVD_TRY(node.writer->write(piece));
    bytes_ += piece.bytes.size();
    files_ += piece.is_end ? 1 : 0;
  }
  return {};
}

std::string ResultKeeper::summary() const {
  return names_.empty() ? ""
                        : counted(files_, "file") + " (" + std::to_string(bytes_) + " bytes) of " +
                              counted(names_.size(), "node") + (files_ == 1 ? " is in " : " are in ") + folder_;
}

}  // namespace hvd::launch
