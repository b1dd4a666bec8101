// JobInput: hvdrun's standard input, on its way to the nodes whose ranks are given it. It is read only as far as all of
// these have asked for, so that neither end holds more than a window of it however much there is.
//
// Thread: loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/agent/messages.h"
#include "launcher/run/input_source.h"
#include "runtime/base/event_loop.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

class JobInput {
 public:
  using Send = std::function<void(int node, AgentMessage, std::shared_ptr<const std::string> frame)>;

  // Reads nothing before all of `nodes` have given credit.
  JobInput(EventLoop& loop, Fd from, const std::vector<int>& nodes, Send send);

  void on_credit(int node, std::uint64_t bytes);
  // Its ranks take no more, or it is lost. When no node is left, whoever writes to us is told by a closed pipe.
  void on_over(int node);
  // This process was continued, perhaps in the foreground of its terminal.
  void look_again();
  // Bytes that were sent.
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  [[nodiscard]] std::size_t allowance() const;
  void send_all(AgentMessage type, std::string_view body);

  const Send send_;
  std::map<int, std::uint64_t> credits_;  // of the nodes that take it
  std::uint64_t count_ = 0;
  std::unique_ptr<InputSource> source_;  // null: nothing more comes
};

}  // namespace hvd::launch
