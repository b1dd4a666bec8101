// A sink and a log that keep what they are told, for tests of the transports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/transport/transport.h"
#include "runtime/base/log.h"

namespace hvd::launch::test {

class RecordingLog final : public Log {
 public:
  void write(LogLevel level, std::string_view message) override {
    text += std::string(message) + "\n";
    warnings += level >= LogLevel::kWarning ? 1 : 0;
  }
  std::string text;
  int warnings = 0;
};

struct RecordingSink final : StreamSink {
  void on_open(const Opened& how) override {
    is_open = true;
    opened = how;
    if (when_open) {
      when_open();
    }
  }
  void on_progress(const std::string& what) override {
    progress.push_back(what);
    if (when_progress) {
      when_progress();
    }
  }
  void on_notice(const std::string& what) override { notices.push_back(what); }
  void on_bytes(Bytes more) override {
    size += more.size();
    if (bytes.size() < 4096) {
      bytes += as_text(more);
    }
    if (when_bytes) {
      when_bytes(more);
    }
  }
  void on_closed(const Error& why) override {
    closed = why;
    if (when_closed) {
      when_closed();
    }
  }
  [[nodiscard]] std::string why() const { return closed ? closed->message() : "(not closed)"; }
  [[nodiscard]] bool says(const std::string& part) const { return why().find(part) != std::string::npos; }

  bool is_open = false;
  Opened opened;
  std::vector<std::string> progress;
  std::vector<std::string> notices;
  std::string bytes;  // the first of them
  std::size_t size = 0;
  std::optional<Error> closed;
  std::function<void()> when_open;
  std::function<void()> when_progress;
  std::function<void(Bytes)> when_bytes;
  std::function<void()> when_closed;
};

// Whether a launcher's loop is woken by nothing but a wait's own end; on a busy machine that may be late.
template <typename Launcher>
bool comes_to_rest(const Launcher& launcher) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(300));
  while (!deadline.has_passed()) {
    const auto before = launcher.loop->wakeups();
    launcher.wait([] { return false; }, std::chrono::milliseconds(300));
    if (launcher.loop->wakeups() - before <= 2) {
      return true;
    }
  }
  return false;
}

inline bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) {
    MESSAGE("'" << part << "' is not in: " << text);
  }
  return found;
}

}  // namespace hvd::launch::test
