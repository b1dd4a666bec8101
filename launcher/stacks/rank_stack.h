// RankStack is where one rank is: the frames of its main thread, as lines that a person reads. Value type; made of what
// the reader on the node printed. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/wire/stack_messages.h"

namespace hvd::launch {

struct RankStack {
  int rank = 0;
  int pid = 0;
  std::string host;
  // "train.py:88 step", the outermost first. Frames of libhvd's Python packages are one: "allreduce 'layer4.weight'".
  // Without a stack it is one line that says why there is none, and what the kernel knows.
  std::vector<std::string> frames;
  bool is_read = false;
  std::string why{};    // without a stack: why there is none
  std::string known{};  // without a stack: what the kernel and libhvd say of it
};

// Returns the one line of a rank without a stack. `why` is empty if the reason is told elsewhere.
std::string no_stack_line(const std::string& why, const std::string& known);

RankStack stack_of(const RankStacks& read);

}  // namespace hvd::launch
