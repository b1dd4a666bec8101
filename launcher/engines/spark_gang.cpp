#include "launcher/engines/spark_gang.h"

#include <utility>

namespace hvd::launch {
namespace {

// Tasks that start faster than this need no progress line; the same interval separates two progress lines.
constexpr auto kSlowStart = std::chrono::seconds(5);

std::string agents_text(int count) {
  return std::to_string(count) + (count == 1 ? " task" : " tasks");
}

}  // namespace

Result<std::unique_ptr<SparkGang>> SparkGang::create(EventLoop& loop, const JobSpec& job, bool is_local, Log& log,
                                                     std::function<void(const std::string&)> say) {
  std::unique_ptr<SparkGang> gang(new SparkGang(loop, job, std::move(say)));
  HVD_TRY_ASSIGN(const DialBackOptions options, DialBackOptions::make(is_local));
  HVD_TRY_ASSIGN(gang->dial_back_, DialBack::listen(loop, options, log));
  CalledAgents::Handlers handlers;
  SparkGang* self = gang.get();
  handlers.on_called = [self](int called) {
    if (called == self->count_) {
      self->loop_.stop();
    }
  };
  handlers.on_lost = [self](const Error& why) { self->stop_for(why); };
  gang->agents_ = std::make_unique<CalledAgents>(loop, *gang->dial_back_, job.size, std::move(handlers));
  const auto on_over = [self](const Error& why) {
    if (self->is_gathering_) {
      self->stop_for(why);
    } else if (self->on_gone_) {
      self->on_gone_(why);
    } else {
      self->failure_ = why;
    }
  };
  HVD_TRY_ASSIGN(gang->driver_, DriverPipe::open(loop, Fd(job.driver_fd), on_over));
  HVD_TRY(gang->driver_->ask_for_calls(options.key(), job.size, gang->dial_back_->place()));
  return gang;
}

SparkGang::SparkGang(EventLoop& loop, const JobSpec& job, std::function<void(const std::string&)> say)
    : loop_(loop), patience_(job.start_timeout), is_quiet_(job.quiet), count_(job.size), say_(std::move(say)) {}

Result<void> SparkGang::gather() {
  is_gathering_ = true;
  const TimerId timer = loop_.after(patience_, [this] {
    const int missing = count_ - agents_->called();
    stop_for(Error(Code::kTimeout, "of " + agents_text(count_) + " of Spark " + std::to_string(missing) +
                                       " did not start within the start timeout; are there as many free slots in the "
                                       "cluster, and can its executors connect to this machine?"));
  });
  tell_later();
  const auto ran = loop_.run();
  loop_.cancel(timer);
  loop_.cancel(std::exchange(tell_timer_, 0));
  is_gathering_ = false;
  HVD_TRY(ran);
  if (failure_) {
    return *failure_;
  }
  CalledPlacement called = place_called(agents_->facts());
  placement_ = std::move(called.placement);
  agents_->assign(std::move(called.partition_of_rank));
  return {};
}

void SparkGang::interrupt(const std::string& why) {
  stop_for(Error(Code::kCancelled, why));
}

void SparkGang::on_gone(std::function<void(const Error&)> handler) {
  on_gone_ = std::move(handler);
  if (failure_) {
    loop_.post([this] { on_gone_(*failure_); });
  }
}

void SparkGang::stop_for(const Error& why) {
  if (is_gathering_ && !failure_) {
    failure_ = why;
    loop_.stop();
  }
}

void SparkGang::tell_later() {
  tell_timer_ = loop_.after(kSlowStart, [this] {
    if (!is_quiet_) {
      say_("waiting for Spark: " + std::to_string(agents_->called()) + " of " + agents_text(count_) + " have started");
    }
    tell_later();
  });
}

}  // namespace hvd::launch
