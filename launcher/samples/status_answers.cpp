#include "launcher/samples/status_answers.h"

#include <utility>

namespace hvd::launch {
namespace {

// The first answer waits for the first two samples where there are none, since rates need two.
constexpr auto kFirstAnswer = std::chrono::milliseconds(1200);

}  // namespace

StatusAnswers::StatusAnswers(EventLoop& loop, JobWatch& watch, LiveServer& server)
    : loop_(loop), watch_(watch), server_(server) {
  server_.on_question(LiveMessage::kAskStatus, [this](LiveServer::CallerId caller, std::string_view) -> Result<void> {
    begin(caller);
    return {};
  });
}

StatusAnswers::~StatusAnswers() {
  loop_.cancel(timer_);
}

void StatusAnswers::begin(LiveServer::CallerId caller) {
  if (callers_.empty()) {
    watch_.want();
    timer_ = loop_.after(kFirstAnswer, [this] { tell_all(); });
  }
  callers_.insert(caller);
}

void StatusAnswers::tell_all() {
  timer_ = 0;
  std::erase_if(callers_, [this](LiveServer::CallerId caller) { return !server_.has(caller); });
  if (callers_.empty()) {
    watch_.release();
    return;
  }
  const std::string body = watch_.picture().encode();
  for (const LiveServer::CallerId caller : callers_) {
    server_.send(caller, LiveMessage::kStatus, body);
  }
  timer_ = loop_.after(JobWatch::kInterval, [this] { tell_all(); });
}

}  // namespace hvd::launch
