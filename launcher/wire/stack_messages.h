// What launcher and agent say to each other when somebody asks where the ranks of a running job are: bodies of the
// messages kAskStacks and kStacks of messages.h. Every decoder is total. Value types.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/wire/messages.h"

namespace hvd::launch {

struct StacksRequest {
  std::uint32_t number = 0;       // of the question, which the answers repeat
  bool is_native = false;         // also frames of C and C++, for which each rank is stopped for a moment
  std::uint32_t patience_ms = 0;  // for all ranks of the node

  static void fields(auto& m, auto& walk) { walk(m.number, m.is_native, m.patience_ms); }
  [[nodiscard]] std::string encode() const;
  static Result<StacksRequest> decode(std::string_view body);
};

// The stacks of one rank. An agent sends one for each of its ranks that run.
struct RankStacks {
  std::uint32_t number = 0;
  std::int32_t rank = 0;
  std::int32_t pid = 0;  // of the process that was read: the rank's, or the Python that it has started
  std::string text;      // the threads and their frames, in the reader's JSON; empty: it was not read
  std::string why;       // why it was not; one line
  std::string kernel;    // what the kernel says of the process: "sleeping in futex_wait"
  std::string waits{};   // for which operation of libhvd it waits, if it does: "allreduce 'layer4.weight'"
  std::string host{};    // filled in by the launcher

  static void fields(auto& m, auto& walk) { walk(m.number, m.rank, m.pid, m.text, m.why, m.kernel, m.waits, m.host); }
  [[nodiscard]] std::string encode() const;
  static Result<RankStacks> decode(std::string_view body);
};

}  // namespace hvd::launch
