// ResultSender is the agent's side of --sync-back: it finds the files in a brought folder that ranks have made or
// changed and that fit the user's patterns, and sends them home.
//
// Thread: loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/tree/ignore_rules.h"
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

  // `brought` is what hvdrun has put there. Patterns are as those of an ignore file.
  void begin(const TreeIndex& brought, const std::vector<std::string>& patterns);
  void on_credit(std::uint64_t bytes);

 private:
  void send_list();
  void send_more();
  void send_soon();

  EventLoop& loop_;
  const std::string root_;
  const Sink sink_;
  std::vector<TreeEntry> entries_;
  std::vector<std::uint32_t> files_;  // places in entries_
  FilePlace place_;
  std::int64_t credit_ = kTreeWindow;
  TimerId timer_ = 0;
};

// Returns the files and links below `root` that fit, and were not brought as they are now, with the folders in which
// they are; sorted by path.
std::vector<TreeEntry> results_in(const std::string& root, const TreeIndex& brought, const IgnoreRules& patterns);

}  // namespace hvd::launch
