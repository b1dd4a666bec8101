#include "launcher/wire/tree_messages.h"

#include <algorithm>

namespace hvd::launch {
namespace {

// A name that is one folder's: it cannot lead anywhere else.
bool is_plain_name(std::string_view name) {
  return is_tree_path(name) && name.find('/') == std::string_view::npos;
}

bool is_tree_list(const TreeList& m) {
  return (m.proofs.empty() || m.proofs.size() == m.entries.size()) &&
         std::all_of(m.entries.begin(), m.entries.end(), [](const TreeEntry& entry) {
           constexpr std::uint32_t kPermissions = 0777;  // a file of another's with setuid would be a danger
           return is_tree_path(entry.path) && (entry.mode & ~kPermissions) == 0 &&
                  (entry.kind == TreeEntry::Kind::kLink) == !entry.target.empty();
         });
}

constexpr std::size_t kPieceHead = 1 + 1 + 8 + 4;  // bytes of a FilePiece before its content

}  // namespace

bool is_tree_path(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    return false;
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

HVD_MESSAGE(TreeOffer, "OfferTree", [](const TreeOffer& m) { return is_plain_name(m.name); })
HVD_MESSAGE(TreeList, "TreeList", is_tree_list)
HVD_MESSAGE(WantedFiles, "WantFiles", [](const WantedFiles& m) { return m.port >= 0 && m.port < 65536; })
HVD_MESSAGE(FetchFiles, "FetchFiles")

// This one message is not walked over field by field: its bytes are copied once by who sends it, and by nobody else.
std::string FileBytes::encode() const {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(pieces.size()));
  for (const FilePiece& piece : pieces) {
    out.u8(piece.is_end ? 1 : 0).u8(piece.is_unreadable ? 1 : 0).u64(piece.hole).text(piece.bytes);
  }
  return std::move(out).str();
}

Result<FileBytes> FileBytes::decode(std::string_view body) {
  ByteReader in(body);
  FileBytes bytes;
  bytes.pieces.resize(in.count(kPieceHead));
  bool is_valid = true;
  for (FilePiece& piece : bytes.pieces) {
    const std::uint8_t is_end = in.u8();
    const std::uint8_t is_unreadable = in.u8();
    is_valid = is_valid && is_end <= 1 && is_unreadable <= 1;
    piece.is_end = is_end == 1;
    piece.is_unreadable = is_unreadable == 1;
    piece.hole = in.u64();
    piece.bytes = as_text(in.take(in.u32()));
  }
  if (!in.finished() || !is_valid) {
    return malformed("FileBytes");
  }
  return bytes;
}

HVD_MESSAGE(FileCredit, "FileCredit")
HVD_MESSAGE(ResultCredit, "ResultCredit")
HVD_MESSAGE(TreeHere, "TreeHere", [](const TreeHere& m) { return m.error.empty() == !m.path.empty(); })

}  // namespace hvd::launch
