#include "launcher/engines/gang.h"

#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Tasks that start faster than this need no progress line; the same interval separates two progress lines.
constexpr auto kSlowStart = std::chrono::seconds(5);

}  // namespace

Gang::Gang(EventLoop& loop, const JobSpec& job, int count, Words words, std::function<void(const std::string&)> say)
    : loop_(loop),
      patience_(job.start_timeout),
      is_quiet_(job.quiet),
      count_(count),
      words_(std::move(words)),
      say_(std::move(say)) {}

Result<void> Gang::listen(const DialBackOptions& options, Log& log) {
  HVD_TRY_ASSIGN(dial_back_, DialBack::listen(loop_, options, log));
  CalledAgents::Handlers handlers;
  handlers.on_called = [this](int called) {
    if (called == count_) {
      loop_.stop();
    }
  };
  handlers.on_lost = [this](const Error& why) { stop_for(why); };
  agents_ = std::make_unique<CalledAgents>(loop_, *dial_back_, count_, std::move(handlers));
  return {};
}

Result<void> Gang::gather() {
  is_gathering_ = true;
  const TimerId timer = loop_.after(patience_, [this] {
    const int missing = count_ - agents_->called();
    stop_for(Error(Code::kTimeout, "of " + tasks_text() + " of " + words_.engine + " " + std::to_string(missing) +
                                       " did not start within the start timeout; " + words_.advice));
  });
  tell_later();
  const auto ran = failure_ ? Result<void>() : loop_.run();
  loop_.cancel(timer);
  loop_.cancel(std::exchange(tell_timer_, 0));
  is_gathering_ = false;
  HVD_TRY(ran);
  if (failure_) {
    return *failure_;
  }
  HVD_TRY_ASSIGN(CalledPlacement called, place_ranks(agents_->facts()));
  placement_ = std::move(called.placement);
  agents_->assign(std::move(called.partition_of_rank));
  return {};
}

void Gang::interrupt(const std::string& why) {
  if (!is_gathering_) {
    loop_.stop();  // finish() waits
  }
  stop_for(Error(Code::kCancelled, why));
}

void Gang::on_gone(std::function<void(const Error&)> handler) {
  on_gone_ = std::move(handler);
  if (failure_) {
    loop_.post([this] { on_gone_(*failure_); });
  }
}

void Gang::on_over(const Error& why) {
  if (is_gathering_) {
    stop_for(why);
  } else if (on_gone_) {
    on_gone_(why);
  } else {
    failure_ = why;
  }
}

void Gang::stop_for(const Error& why) {
  if (is_gathering_ && !failure_) {
    failure_ = why;
    loop_.stop();
  }
}

void Gang::tell(const std::string& line) const {
  if (!is_quiet_) {
    say_(line);
  }
}

std::string Gang::tasks_text() const {
  return counted(static_cast<std::size_t>(count_), words_.task);
}

void Gang::tell_later() {
  tell_timer_ = loop_.after(kSlowStart, [this] {
    tell("waiting for " + words_.engine + ": " + std::to_string(agents_->called()) + " of " + tasks_text() +
         " have started");
    tell_later();
  });
}

}  // namespace hvd::launch
