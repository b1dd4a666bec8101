#include "launcher/wire/stack_messages.h"

namespace hvd::launch {

std::string StacksRequest::encode() const {
  return encoded(*this);
}

Result<StacksRequest> StacksRequest::decode(std::string_view body) {
  return decoded<StacksRequest>(body, "AskStacks");
}

std::string RankStacks::encode() const {
  return encoded(*this);
}

Result<RankStacks> RankStacks::decode(std::string_view body) {
  return decoded<RankStacks>(body, "Stacks", [](const RankStacks& m) { return m.rank >= 0 && m.pid >= 0; });
}

}  // namespace hvd::launch
