// Log is the interface to our own diagnostics, which is passed in as Clock is. The output of ranks does not go through
// it.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  virtual ~Log() = default;
  // Writes one message as one line; it has no trailing newline. Thread: any.
  virtual void write(LogLevel level, std::string_view message) = 0;

 protected:
  Log() = default;
  Log(const Log&) = default;
  Log& operator=(const Log&) = default;
};

class NullLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

// StderrLog writes "hvd: warning: message" to standard error, in one write, for the agent and the runtime. Thread: any.
class StderrLog final : public Log {
 public:
  explicit StderrLog(LogLevel lowest, std::string_view who = "hvd") : lowest_(lowest), who_(who) {}
  void write(LogLevel level, std::string_view message) override;

 private:
  LogLevel lowest_;
  std::string_view who_;
};

}  // namespace hvd
