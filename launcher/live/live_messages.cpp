#include "launcher/live/live_messages.h"

namespace hvd::launch {

std::string LiveJob::encode() const {
  return encoded(*this);
}

Result<LiveJob> LiveJob::decode(std::string_view body) {
  return decoded<LiveJob>(body, "LiveJob", [](const LiveJob& m) { return m.pid > 0 && m.size >= 0; });
}

std::string StacksQuestion::encode() const {
  return encoded(*this);
}

Result<StacksQuestion> StacksQuestion::decode(std::string_view body) {
  return decoded<StacksQuestion>(body, "StacksQuestion");
}

std::string StacksAnswer::encode() const {
  return encoded(*this);
}

Result<StacksAnswer> StacksAnswer::decode(std::string_view body) {
  return decoded<StacksAnswer>(body, "StacksAnswer");
}

}  // namespace hvd::launch
