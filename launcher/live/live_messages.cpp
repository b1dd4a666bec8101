#include "launcher/live/live_messages.h"

namespace hvd::launch {

HVD_MESSAGE(LiveJob, "LiveJob", [](const LiveJob& m) { return m.pid > 0 && m.size >= 0; })
HVD_MESSAGE(StacksQuestion, "StacksQuestion")
HVD_MESSAGE(StacksAnswer, "StacksAnswer")

}  // namespace hvd::launch
