#include "runtime/coordinate/autotune_log.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace hvd {

Result<AutotuneLog> AutotuneLog::create(const std::string& path, bool is_hierarchical, bool has_cache) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.is_open()) {
    return Error::from_errno("the autotune log " + path);
  }
  const std::string nodes = is_hierarchical ? "1,1,0," : "0,0,0,";
  AutotuneLog log(std::move(fd), nodes + (has_cache ? "1," : "0,"));
  HVD_TRY(
      log.write("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
                "tensor_fusion_threshold,score\n"));
  return log;
}

Result<void> AutotuneLog::write(const Autotuner::Trial& trial) {
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, "%g,%g,%g\n",
                std::chrono::duration<double, std::milli>(trial.setting.window).count(),
                static_cast<double>(trial.setting.fusion_bytes) / (1U << 20U), trial.score);
  return write(first_columns_ + numbers);
}

Result<void> AutotuneLog::write(const std::string& line) {
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t wrote = ::write(fd_.get(), line.data() + sent, line.size() - sent);
    if (wrote < 0 && errno != EINTR) {
      return Error::from_errno("write to the autotune log");
    }
    sent += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
  }
  return {};
}

}  // namespace hvd
