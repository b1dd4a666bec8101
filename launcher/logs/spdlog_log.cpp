#include "launcher/logs/spdlog_log.h"

#include <exception>
#include <mutex>

#include <spdlog/sinks/base_sink.h>
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

class LineSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LineSink(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const std::string_view line(text.data(), text.size());
    write_(line.substr(0, line.find_last_not_of('\n') + 1));
  }
  void flush_() override {}

  const std::function<void(std::string_view)> write_;
};

class SpdlogLog final : public Log {
 public:
  SpdlogLog(LogLevel lowest, std::function<void(std::string_view)> write)
      : logger_("hvdrun", std::make_shared<LineSink>(std::move(write))) {
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

std::unique_ptr<Log> make_spdlog_log(LogLevel lowest, std::function<void(std::string_view line)> write) {
  return std::make_unique<SpdlogLog>(lowest, std::move(write));
}

}  // namespace hvd::launch
