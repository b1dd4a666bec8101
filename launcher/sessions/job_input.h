// JobInput carries hvdrun's standard input to the nodes whose ranks are given it. It reads only as far as all of these
// nodes have given credit, so that neither end holds more than one window of it, however long the input is.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/sessions/input_source.h"
#include "launcher/wire/messages.h"
#include "runtime/base/fd.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class JobInput {
 public:
  using Send = std::function<void(int node, AgentMessage, std::shared_ptr<const std::string> frame)>;

  // Reads nothing before every one of `nodes` has given credit.
  JobInput(EventLoop& loop, Fd from, const std::vector<int>& nodes, Send send);

  void on_credit(int node, std::uint64_t bytes);
  // The node's ranks take no more, or the node is lost. When no node is left, the input is closed, so that its writer
  // learns of it.
  void on_over(int node);
  // This process was continued, perhaps in the foreground of its terminal.
  void look_again();
  // Returns the number of bytes sent so far.
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  [[nodiscard]] std::size_t allowance() const;
  void send_all(AgentMessage type, std::string_view body);

  const Send send_;
  std::map<int, std::uint64_t> credits_;  // by node, of the nodes that still take input
  std::uint64_t count_ = 0;
  std::unique_ptr<InputSource> source_;  // null: no more input will be sent
};

}  // namespace hvd::launch
