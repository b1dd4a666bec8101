// SparkGang is the start of a job under Spark or Ray (gang.h): it tells the driver where the tasks' agents must connect
// (driver_pipe.h). Each task is one rank, and the engine puts it where it likes. No message names Spark.
//
// Thread: loop only. The EventLoop and the Log outlive it; it outlives the JobRunner that uses its transport.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/engines/driver_pipe.h"
#include "launcher/engines/gang.h"

namespace hvd::launch {

class SparkGang final : public Gang {
 public:
  // `is_local`: all of Spark's executors are on this machine. `say` takes a line for the user.
  static Result<std::unique_ptr<Gang>> create(EventLoop& loop, const JobSpec& job, bool is_local, Log& log,
                                              std::function<void(const std::string&)> say);

 private:
  SparkGang(EventLoop& loop, const JobSpec& job, std::function<void(const std::string&)> say);
  [[nodiscard]] Result<CalledPlacement> place_ranks(const std::vector<ReadyMessage>& facts) const override;

  std::unique_ptr<DriverPipe> driver_;
};

}  // namespace hvd::launch
