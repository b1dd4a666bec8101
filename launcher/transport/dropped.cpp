#include "launcher/transport/dropped.h"

#include <algorithm>
#include <cmath>

namespace hvd::launch {
namespace {

constexpr double kFirstBackoffMs = 150;
constexpr double kMaxBackoffMs = 2000;

bool has(std::string_view line, std::string_view part) {
  return line.find(part) != std::string_view::npos;
}

// Warnings such as "Permanently added ..." or "connection is not using a post-quantum ..." are not why ssh ended.
bool is_beside_the_point(std::string_view line) {
  return line.empty() || line.starts_with("Warning: ") || line.starts_with("** ");
}

Dropped dropped_by_line(std::string_view line) {
  const bool is_first =
      line.starts_with("kex_exchange_identification: ") || line.starts_with("ssh_exchange_identification: ");
  const bool is_end =
      has(line, "Connection closed by ") || has(line, "Connection reset by ") || has(line, "Broken pipe");
  if (is_first && is_end) {
    return Dropped::kBeforeLogin;
  }
  const bool is_plain = line.starts_with("Connection closed by ") || line.starts_with("Connection reset by ") ||
                        (line.starts_with("banner exchange: Connection ") && is_end);
  return is_plain ? Dropped::kPerhaps : Dropped::kNo;
}

}  // namespace

Dropped dropped_by(std::string_view errors) {
  Dropped found = Dropped::kNo;
  while (!errors.empty()) {
    const std::string_view line = errors.substr(0, errors.find_first_of("\r\n"));
    errors.remove_prefix(std::min(line.size() + 1, errors.size()));
    if (is_beside_the_point(line)) {
      continue;
    }
    const Dropped said = dropped_by_line(line);
    if (said == Dropped::kNo) {
      return said;
    }
    found = std::max(found, said);
  }
  return found;
}

Duration drop_backoff(int drops, std::minstd_rand& jitter) {
  const double ms = std::min(kFirstBackoffMs * std::exp2(drops), kMaxBackoffMs);
  std::uniform_real_distribution<double> spread(0.5, 1.5);
  return std::chrono::milliseconds(static_cast<std::int64_t>(ms * spread(jitter)));
}

}  // namespace hvd::launch
