// What launcher and agent say to each other when a folder of the user's is brought to a node (--sync): bodies of the
// messages kOfferTree to kTreeHere of messages.h. The launcher offers the folder by name and digest. An agent that does
// not have it asks for the list of what is in it, and then for the contents that it lacks. Every decoder is total.
// Value types.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/messages.h"
#include "runtime/rendezvous/gmac.h"

namespace hvd::launch {

using ContentHash = std::array<std::uint8_t, 32>;  // SHA-256

// A file is known by its SHA-256, from one job to the next and whoever may have made it. That a node has got what the
// list says, is another question: the connection is encrypted and authenticated, and it only has to notice that the
// file was read anew after the list was made, here or on the node that gives it away. For this a keyed proof (gmac.h)
// is enough: the key is drawn anew for each list, and only the nodes of the job know it. It costs each node a quarter
// of the hash. A node that passes files on could forge them; but it is one of the nodes that run this user's program,
// whose ranks take objects from each other, so it could do as much without files.
using ContentProof = GmacProof;

// One file, folder or symbolic link.
struct TreeEntry {
  enum class Kind : std::uint8_t { kFile = 1, kFolder = 2, kLink = 3 };
  std::string path;  // relative to the folder, without "." and ".." and empty parts
  Kind kind = Kind::kFile;
  std::uint32_t mode = 0;       // permissions: 0755; unused for a link
  std::uint64_t size = 0;       // of a file, in bytes, when the list was made
  std::int64_t changed_ns = 0;  // when a file's content was changed, since 1970
  ContentHash hash{};           // of a file's content, or of a link's target
  std::string target;           // of a link

  static void fields(auto& m, auto& walk) {
    walk(m.path, bounded(m.kind, Kind::kFile, Kind::kLink), m.mode, m.size, m.changed_ns, m.hash, m.target);
  }
};

// The path cannot lead out of the folder by what it says. Links that it may meet on the way are another matter.
bool is_tree_path(std::string_view path);

// OfferTree: the folder of this name is to be as the digest of its list says.
struct TreeOffer {
  std::string name;  // of the node's folder; a single word
  ContentHash digest{};
  GmacKey key{};  // of the proofs in the list; new for each job

  static void fields(auto& m, auto& walk) { walk(m.name, m.digest, m.key); }
  [[nodiscard]] std::string encode() const;
  static Result<TreeOffer> decode(std::string_view body);
};

// TreeList: the answer to AskTree, in parts. The entries of all parts are sorted by path.
struct TreeList {
  bool is_last = false;
  std::vector<TreeEntry> entries;
  std::vector<ContentProof>
      proofs{};  // of each entry that is a file; the nonce is its place in the list. Results have none

  static void fields(auto& m, auto& walk) { walk(m.is_last, m.entries, m.proofs); }
  [[nodiscard]] std::string encode() const;
  static Result<TreeList> decode(std::string_view body);
};

// WantFiles: the files whose contents the agent lacks, by their places in the list. It is sent once more, with what is
// then left, where the agent cannot get them from another one.
struct WantedFiles {
  std::vector<std::uint32_t> indices;
  std::int32_t port = 0;  // where this agent gives what it has to others of the job; 0: nowhere
  std::string why{};      // the second time: why the other one does not give them

  static void fields(auto& m, auto& walk) { walk(m.indices, m.port, m.why); }
  [[nodiscard]] std::string encode() const;
  static Result<WantedFiles> decode(std::string_view body);
};

// FileBytes: the contents of the wanted files, one after the other in their order, in pieces of any size. The bytes are
// the caller's, or those of the body that was decoded: they pass each node of a job, so that a copy would be felt.
struct FilePiece {
  bool is_end = false;  // of its file
  // With the end: what came of it is nothing, and `bytes` say why. A brought file is gone then, a result may be there.
  bool is_unreadable = false;
  std::uint64_t hole = 0;  // so many zeros before the bytes, which take no room on a disk; only of results
  std::string_view bytes{};
};
struct FileBytes {
  std::vector<FilePiece> pieces;

  [[nodiscard]] std::string encode() const;
  static Result<FileBytes> decode(std::string_view body);
};

// FetchFiles: another agent gives the wanted files, at one of these addresses (peer_server.h).
struct FetchFiles {
  std::vector<std::string> addresses;  // "10.0.0.1:4711"

  static void fields(auto& m, auto& walk) { walk(m.addresses); }
  [[nodiscard]] std::string encode() const;
  static Result<FetchFiles> decode(std::string_view body);
};

// FileCredit: so many bytes of TreeList and FileBytes were taken, and as many may be sent in addition, by us.
struct FileCredit {
  std::uint64_t bytes = 0;
  bool is_waiting = false;  // this agent waits, for another one copies into the same folder
  std::string why{};        // told once, and empty before and after: for whom it waits

  static void fields(auto& m, auto& walk) { walk(m.bytes, m.is_waiting, m.why); }
  [[nodiscard]] std::string encode() const;
  static Result<FileCredit> decode(std::string_view body);
};

// ResultCredit: so many bytes of ResultList and ResultBytes may be sent in addition.
struct ResultCredit {
  static constexpr std::uint64_t kNothing = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes = 0;
  // After so many files of all lists, the next one cannot be kept: it is to end. kNothing: no file can be kept any
  // more.
  std::optional<std::uint64_t> ends{};

  static void fields(auto& m, auto& walk) {
    walk(m.bytes, presence(m.ends));
    if (m.ends) {
      walk(*m.ends);
    }
  }
  [[nodiscard]] std::string encode() const;
  static Result<ResultCredit> decode(std::string_view body);
};

// TreeHere: the folder is as it was offered, or cannot be.
struct TreeHere {
  std::string path;           // of the folder on the node
  std::uint32_t files = 0;    // whose contents have come
  std::uint64_t bytes = 0;    // of these
  std::uint32_t removed = 0;  // files that are not in the list any more
  std::string changed;        // the first file that came with another content than the list's; empty: none did
  std::uint32_t others = 0;   // that did so too
  std::string error;          // empty: none

  static void fields(auto& m, auto& walk) { walk(m.path, m.files, m.bytes, m.removed, m.changed, m.others, m.error); }
  [[nodiscard]] std::string encode() const;
  static Result<TreeHere> decode(std::string_view body);
};

// Most bytes of FileBytes that may be under way to a node; the agent grants as many again as it has written.
inline constexpr std::uint64_t kTreeWindow = 4U << 20U;

}  // namespace hvd::launch
