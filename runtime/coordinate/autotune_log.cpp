#include "runtime/coordinate/autotune_log.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace hvd {
namespace {

double milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

AutotuneLog::AutotuneLog(const std::string& path, bool is_hierarchical, bool has_cache, Log& log)
    : log_(log), first_columns_(std::string(is_hierarchical ? "1,1,0," : "0,0,0,") + (has_cache ? "1," : "0,")) {
  if (path.empty()) {
    return;
  }
  fd_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd_.is_open()) {
    keep_if(Error::from_errno("the autotune log " + path));
    return;
  }
  keep_if(
      write("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
            "tensor_fusion_threshold,score\n"));
}

void AutotuneLog::report(const Autotuner::News& news) {
  for (const Autotuner::Trial& trial : news.trials) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "%g,%g,%g\n", milliseconds(trial.setting.window),
                  static_cast<double>(trial.setting.fusion_bytes) / (1U << 20U), trial.score);
    if (fd_.is_open()) {
      keep_if(write(first_columns_ + numbers));
    }
  }
  if (news.is_done) {
    const TunedSetting& best = news.trials.back().setting;
    log_.write(LogLevel::kInfo, "autotune stays with HOROVOD_FUSION_THRESHOLD=" + std::to_string(best.fusion_bytes) +
                                    " and HOROVOD_CYCLE_TIME=" + std::to_string(milliseconds(best.window)));
  }
}

void AutotuneLog::keep_if(const Result<void>& written) {
  if (!written.ok()) {
    log_.write(LogLevel::kWarning, written.error().message());
    fd_ = Fd();
  }
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
