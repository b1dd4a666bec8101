#include "launcher/process/oom_watch.h"

#include <fstream>
#include <utility>

namespace hvd::launch {

OomWatch::OomWatch(std::string vmstat) : vmstat_(std::move(vmstat)), seen_(count()) {}

std::optional<std::uint64_t> OomWatch::count() const {
  std::ifstream in(vmstat_);
  std::string name;
  std::uint64_t number = 0;
  while (in >> name >> number) {
    if (name == "oom_kill") {
      return number;
    }
  }
  return std::nullopt;
}

bool OomWatch::has_killed() {
  const auto now = count();
  if (!now || !seen_ || *now <= *seen_) {
    return false;
  }
  ++*seen_;
  return true;
}

}  // namespace hvd::launch
