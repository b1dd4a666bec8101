#include "launcher/wire/stack_messages.h"

namespace hvd::launch {

HVD_MESSAGE(StacksRequest, "AskStacks")
HVD_MESSAGE(RankStacks, "Stacks", [](const RankStacks& m) { return m.rank >= 0 && m.pid >= 0; })

}  // namespace hvd::launch
