#include "launcher/logs/error_tail.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {
namespace {

// The report quotes no more than this of a rank's standard error.
constexpr std::size_t kTailLines = 60;
constexpr std::size_t kTailLineBytes = 500;
// Lines of others, among and after those of a rank, which leave these easy to see.
constexpr std::uint64_t kFewOthers = 6;

}  // namespace

void ErrorTail::add(std::string_view line, std::uint64_t place) {
  if (std::exchange(ends_with_bar_, line.ends_with('\r')) && !lines_.empty()) {
    lines_.pop_back();  // the line is drawn over: only the newest state of a progress bar is worth a line
  }
  line = line.substr(0, std::min(line.find_last_not_of("\r\n") + 1, kTailLineBytes));
  lines_.push_back({std::string(line), place});
  if (lines_.size() > kTailLines) {
    lines_.pop_front();
  }
}

LastErrors ErrorTail::last(std::uint64_t shown) const {
  LastErrors last;
  for (const Line& line : lines_) {
    last.lines.push_back(line.text);
  }
  for (auto line = lines_.rbegin(); line != lines_.rend() && line->place != 0; ++line) {
    if (shown - line->place > last.just_shown + kFewOthers) {
      break;
    }
    ++last.just_shown;
  }
  return last;
}

}  // namespace hvd::launch
