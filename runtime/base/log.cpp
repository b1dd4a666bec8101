#include "runtime/base/log.h"

#include <unistd.h>

#include <string>

namespace hvd {

void StderrLog::write(LogLevel level, std::string_view message) {
  if (level < lowest_) {
    return;
  }
  static constexpr const char* kNames[] = {"debug: ", "", "warning: ", "error: "};
  std::string line(who_);
  line += ": ";
  line += kNames[static_cast<std::size_t>(level)];
  line += message;
  line += '\n';
  // There is one write per line, so that lines of several threads and ranks never mix. If stderr is full or closed,
  // only the line is lost.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hvd
