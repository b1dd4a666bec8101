#include "launcher/logs/spdlog_log.h"

#include <exception>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace hvd::launch {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

class SpdlogLog final : public Log {
 public:
  explicit SpdlogLog(LogLevel lowest) : logger_("hvdrun", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(level_of(lowest));
    logger_.set_pattern("hvdrun: [%H:%M:%S.%e] %v");
  }

  void write(LogLevel level, std::string_view message) override {
    try {
      logger_.log(level_of(level), message);
    } catch (const std::exception&) {
      // A diagnostic that cannot be written must not end the job.
    }
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> make_spdlog_log(LogLevel lowest) {
  return std::make_unique<SpdlogLog>(lowest);
}

}  // namespace hvd::launch
