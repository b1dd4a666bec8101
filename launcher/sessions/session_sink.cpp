#include "launcher/sessions/session_sink.h"

namespace hvd::launch {

Result<void> SessionSink::on_answer(int, AgentMessage type, const std::string&) {
  return Error(Code::kProtocol, "its agent sent a message of type " + std::to_string(static_cast<std::uint16_t>(type)) +
                                    ", which was not asked for");
}

}  // namespace hvd::launch
