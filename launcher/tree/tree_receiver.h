// TreeReceiver is the agent's side of --sync: it answers what the launcher says of a folder, until the folder is here
// as it was offered, and holds it from then on.
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/peer_fetch.h"
#include "launcher/tree/peer_server.h"
#include "launcher/tree/tree_folder.h"
#include "launcher/tree/tree_writer.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class TreeReceiver {
 public:
  using Send = std::function<void(AgentMessage type, std::string_view body)>;

  struct Job {
    std::string id;
    JobSecret secret{};  // by which agents of its nodes know each other
  };

  TreeReceiver(EventLoop& loop, std::vector<std::string> environment, Job job, Send send)
      : loop_(loop), environment_(std::move(environment)), job_(std::move(job)), send_(std::move(send)) {}
  // Keeps what has come so far, if the launcher is gone before all has.
  ~TreeReceiver();
  TreeReceiver(const TreeReceiver&) = delete;
  TreeReceiver& operator=(const TreeReceiver&) = delete;

  // Takes a message about a folder. An error is the launcher's: what it says has no meaning. What cannot be written is
  // told to it.
  Result<void> on_message(AgentMessage type, std::string_view body);
  // Nobody needs files of this node any more.
  void stop_serving() { server_.reset(); }
  // Nothing before the folder was offered.
  [[nodiscard]] const std::optional<TreeFolder>& folder() const { return folder_; }

 private:
  Result<void> on_offer(std::string_view body);
  Result<void> on_list(std::string_view body);
  Result<void> on_bytes(std::string_view body);
  Result<void> on_fetch(std::string_view body);
  // Takes bytes of wanted files, from whomever.
  Result<void> take_bytes(std::string_view body);
  void ask_for_files();
  void on_fetch_failed(const Error& why);
  void take(int number);
  void await(const TakenFolder& taken, int number);
  void check();
  void prepare();
  // What is in the folder now.
  [[nodiscard]] TreeIndex written() const;
  void finish();
  void fail(const Error& why);
  // Does the next portion of long work when the loop has done what else there is.
  void go_on_with(void (TreeReceiver::*step)());

  EventLoop& loop_;
  const std::vector<std::string> environment_;
  const Job job_;
  const Send send_;
  TreeOffer offer_;
  // The digest of a folder that came as offered but for files that were changed meanwhile. It has the job's secret in
  // it: the job's other agents that share this home take it as it is, and the next job does not.
  ContentHash own_digest_{};
  std::optional<TreeFolder> folder_;
  int pauses_ = 0;               // in the wait for the folder's lock
  std::size_t checked_ = 0;      // entries of the folder's index
  std::vector<TreeEntry> list_;  // as far as it has come
  std::vector<ContentProof> proofs_;
  std::unique_ptr<TreeWriter> writer_;
  std::unique_ptr<PeerServer> server_;  // null: nobody gets files here
  std::unique_ptr<PeerFetch> fetch_;    // null: the launcher sends what is wanted
  std::uint64_t untold_ = 0;            // bytes that were fetched, and of which the launcher does not know yet
  TreeHere here_;
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
