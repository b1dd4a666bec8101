// MetricsPlace is where a job's metrics can be asked for (--metrics-listen). Value type.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace hvd::launch {

struct MetricsPlace {
  std::string socket;  // the path of a unix socket; else `ip` and `port`
  std::string ip;      // without brackets
  std::uint16_t port = 0;
  std::string token;  // that whoever asks must show; empty: none

  [[nodiscard]] bool is_on() const { return !socket.empty() || port != 0; }
};

// Reads "unix:PATH", "127.0.0.1:PORT" or "[::1]:PORT". An address that others can reach needs a token. An error says
// what was expected. Pure.
Result<MetricsPlace> parse_metrics_place(const std::string& text, const std::string& token);

}  // namespace hvd::launch
