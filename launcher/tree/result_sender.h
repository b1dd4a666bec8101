// ResultSender is the agent's side of --sync-back: it sends home what a ResultWalk finds. It walks on while it sends: a
// list of some files, these files, and the next list. So neither end ever holds more than one list.
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/result_walk.h"
#include "launcher/tree/tree_index.h"
#include "launcher/tree/tree_portion.h"
#include "launcher/wire/tree_messages.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class ResultSender {
 public:
  struct Sink {
    std::function<void(AgentMessage type, std::string_view body)> send;
    // Something could not be read.
    std::function<void(const std::string& why)> on_problem;
    // All has been sent; the object may be destroyed.
    std::function<void()> on_over;
  };

  ResultSender(EventLoop& loop, std::string root, Sink sink)
      : loop_(loop), root_(std::move(root)), sink_(std::move(sink)) {}
  ~ResultSender() { loop_.cancel(timer_); }
  ResultSender(const ResultSender&) = delete;
  ResultSender& operator=(const ResultSender&) = delete;

  // `brought` is what hvdrun has put there, and outlives this. Patterns are as those of an ignore file.
  void begin(const TreeIndex& brought, const std::vector<std::string>& patterns);
  void on_credit(const ResultCredit& credit);

 private:
  // The launcher cannot keep the file after so many: if it is still being sent, it ends here.
  void end_file(std::uint64_t files_before);
  void go_on();
  void go_on_soon();
  void send_list();
  void send_bytes();
  void send_piece(const std::string& body, const FilePlace& next);

  EventLoop& loop_;
  const std::string root_;
  const Sink sink_;
  std::optional<ResultWalk> walk_;
  std::vector<TreeEntry> entries_;    // of the list that was sent last
  std::vector<std::uint32_t> files_;  // places in entries_
  FilePlace place_;
  std::uint64_t files_before_ = 0;  // of the lists before this one
  std::int64_t credit_ = kTreeWindow;
  TimerId timer_ = 0;
};

}  // namespace hvd::launch
