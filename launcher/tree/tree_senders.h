// TreeSenders are the launcher's side of --sync: they bring one folder to each node that asks for it, and tell when it
// is there. The first nodes get the files from here. The others get them from nodes that asked before, two from each,
// so that what goes out from here does not grow with the number of nodes; who cannot reach its source gets them from
// here.
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/tree_contents.h"
#include "launcher/tree/tree_scan.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class TreeSenders {
 public:
  struct Sink {
    std::function<void(int node, AgentMessage type, std::shared_ptr<const std::string> frame)> send;
    // The folder is on the node; its path is known.
    std::function<void(int node)> on_here;
    // The node cannot have it.
    std::function<void(int node, const Error& why)> on_failed;
    // Returns where other nodes may reach the node, best first, without a port.
    std::function<std::vector<std::string>(int node)> addresses_of;
    // The node, before the ranks start, got files with another content than the list's: the first, which is told of
    // once, and so many others.
    std::function<void(int node, const std::string& path, std::size_t others)> on_changed;
    // The node waits for somebody who copies into the same folder. Told once for each text.
    std::function<void(int node, const std::string& what)> on_waiting;
    // The node does not get the files from its source, so that they come from here.
    std::function<void(int node, int source, const std::string& why)> on_fallback;
  };

  // What has been done for all nodes so far.
  struct Totals {
    std::size_t nodes = 0;  // that lacked something
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
    std::uint64_t removed = 0;
  };

  TreeSenders(EventLoop& loop, Tree tree, Sink sink);
  ~TreeSenders();
  TreeSenders(const TreeSenders&) = delete;
  TreeSenders& operator=(const TreeSenders&) = delete;

  void offer(int node);
  // An error ends the session: the agent says what has no meaning here.
  Result<void> on_message(int node, AgentMessage type, std::string_view body);
  // The node is lost.
  void forget(int node);
  // The ranks start: no node gives files to others any more.
  void stop_sharing();

  // The folder's path on the node; empty where it is not there yet.
  [[nodiscard]] const std::string& path_on(int node) const;
  // "copying files: 35 of 100 MB"; empty: nothing is being copied to it.
  [[nodiscard]] std::string progress_of(int node) const;
  // Counts what nodes were sent, and their signs of life, so that a wait can be told from a standstill.
  [[nodiscard]] std::uint64_t activity() const { return activity_; }
  [[nodiscard]] const Totals& totals() const { return totals_; }
  [[nodiscard]] const Tree& tree() const { return tree_; }

 private:
  struct Node {
    int port = 0;       // where it gives files to others; 0: nowhere
    int receivers = 0;  // that were sent there
    int source = -1;    // the node that gives it files; -1: we do
    bool has_asked = false;
    bool is_waiting = false;      // for another job, which copies into the same folder
    std::size_t list_left = 0;    // parts of the list that are to be sent
    TreeContents::Wanted wanted;  // null: it has not asked
    FilePlace place;
    std::int64_t credit = kTreeWindow;  // the last frame may exceed it
    std::uint64_t wanted_bytes = 0;
    std::uint64_t sent_bytes = 0;
    std::string path;
  };

  Result<void> on_wanted(int node, Node& to, std::string_view body);
  // The node that is to give this one its files; -1: we are.
  [[nodiscard]] int source_for(int node) const;
  Result<void> on_here(int node, Node& to, std::string_view body);
  // Sends a frame to each node that may get one, and goes on when the loop has done what else there is.
  void send_more();
  // Sends the node's next frame, of the list or of files. True: there is more to send.
  Result<bool> send_next(int node, Node& to);
  void send_soon();

  EventLoop& loop_;
  const Tree tree_;
  const Sink sink_;
  TreeContents contents_;
  std::map<int, Node> nodes_;
  bool is_sharing_ = true;
  std::uint64_t activity_ = 0;
  Totals totals_;
  std::set<std::string> changed_;  // the first files that were told of
  std::set<std::string> waits_;    // that were told of
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
