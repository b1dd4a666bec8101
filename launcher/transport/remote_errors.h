// RemoteErrors collects what an ssh channel or a command in its place printed to its standard error: failures of agents
// and shells stand there. Whole lines go to the log, the last ones into errors. It is bounded. Thread: loop only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/log.h"

namespace hvd::launch {

class RemoteErrors {
 public:
  RemoteErrors(Log& log, const std::string& host, LogLevel level = LogLevel::kInfo)
      : log_(log), host_(host), level_(level) {}
  void feed(std::string_view text);
  // Returns the last 4 KiB.
  [[nodiscard]] const std::string& tail() const { return tail_; }
  // Forgets the text, since another program's begins here.
  void forget();
  // Says whether the last 4 KiB hold the text.
  [[nodiscard]] bool has(std::string_view text) const { return tail_.find(text) != std::string::npos; }
  // Returns the last line that is not empty, or nothing.
  [[nodiscard]] std::string last_line() const { return last_lines(1); }
  // Returns the last lines that are not empty, at most `count`, with "; " between.
  [[nodiscard]] std::string last_lines(std::size_t count) const;

 private:
  Log& log_;
  const std::string host_;
  const LogLevel level_;
  std::string partial_;
  std::string tail_;
};

}  // namespace hvd::launch
