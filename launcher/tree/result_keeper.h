// ResultKeeper is the launcher's side of --sync-back: it writes the files that come home from each node into a folder
// that has the node's name.
//
// Thread: loop only. Blocks as long as writing a frame's bytes does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/tree_writer.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class ResultKeeper {
 public:
  struct Sink {
    std::function<void(int node, AgentMessage type, std::string_view body)> send;
    // A node's files cannot be kept. It is told once for each node, and what else comes of it is dropped.
    std::function<void(int node, const Error& why)> on_failed;
    // One file does not come home, since the node cannot read it or we cannot write it; others do.
    std::function<void(int node, const Error& why)> on_missed;
  };

  // `folder` is made when something comes.
  ResultKeeper(std::string folder, Sink sink) : folder_(std::move(folder)), sink_(std::move(sink)) {}

  // An error ends the session: the agent says what has no meaning here.
  Result<void> on_message(int node, const std::string& name, AgentMessage type, std::string_view body);
  // Grows with the content that comes, and with nothing else that nodes say.
  [[nodiscard]] std::uint64_t progress() const { return bytes_ + files_ * kFileWorth; }
  // "3 files (120 bytes) of 2 nodes are in results"; empty: none have come.
  [[nodiscard]] std::string summary() const;

 private:
  static constexpr std::uint64_t kFileWorth = 4096;  // an empty file needs room and time too

  struct Node {
    Fd folder;  // not open: no list has come
    std::string path;
    std::string part;  // the name of a file there until all of it has come; others may write there too
    std::unique_ptr<TreeWriter> writer;  // null: no list has come
    std::uint64_t room = 0;              // that it has not used up yet
    std::uint64_t ended = 0;             // files of which all has come, or no more comes
    std::size_t lost = 0;                // of these, that could not be kept
    bool is_dropping = false;            // what still comes of a file that cannot be kept
    std::optional<std::uint64_t> ends;   // the number of that file, which its agent has not been told yet
    bool has_failed = false;
  };

  Result<void> open_folder(Node& node, const std::string& name);
  Result<void> on_list(int number, Node& node, const std::string& name, std::string_view body);
  Result<void> on_bytes(int number, Node& node, std::string_view body);
  Result<void> on_piece(int number, Node& node, const FilePiece& piece);
  // An error where too many of the node's files cannot be kept, of which this is one more.
  static Result<void> count_lost(Node& node, const Error& why);
  // The file that is being written cannot be kept.
  Result<void> lose_file(int number, Node& node, bool has_ended, const Error& why);

  const std::string folder_;
  const Sink sink_;
  std::map<int, Node> nodes_;
  std::set<std::string> names_;  // of the nodes of which something has come
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace hvd::launch
