#include "launcher/engines/spark_gang.h"

#include <utility>

namespace hvd::launch {

Result<std::unique_ptr<Gang>> SparkGang::create(EventLoop& loop, const JobSpec& job, bool is_local, Log& log,
                                                std::function<void(const std::string&)> say) {
  std::unique_ptr<SparkGang> gang(new SparkGang(loop, job, std::move(say)));
  HVD_TRY_ASSIGN(const DialBackOptions calls, DialBackOptions::make(is_local));
  HVD_TRY(gang->listen(calls, log));
  HVD_TRY_ASSIGN(gang->driver_, DriverPipe::open(loop, Fd(job.driver_fd),
                                                 [self = gang.get()](const Error& why) { self->on_over(why); }));
  HVD_TRY(gang->driver_->ask_for_calls(calls.key(), job.size, gang->place()));
  return std::unique_ptr<Gang>(std::move(gang));
}

SparkGang::SparkGang(EventLoop& loop, const JobSpec& job, std::function<void(const std::string&)> say)
    : Gang(loop, job, job.size,
           Words{"the cluster", "task",
                 "are there as many free places in the cluster, and can its hosts connect to this machine?"},
           std::move(say)) {}

Result<CalledPlacement> SparkGang::place_ranks(const std::vector<ReadyMessage>& facts) const {
  return place_called(facts);
}

}  // namespace hvd::launch
