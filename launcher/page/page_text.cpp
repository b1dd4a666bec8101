#include "launcher/page/page_text.h"

#include <cmath>

#include "runtime/base/text.h"

namespace hvd::launch {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        // HTML allows no control characters.
        safe += c >= 0 && c < ' ' && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return safe;
}

std::string fixed_text(double number, int digits) {
  return formatted("%.*f", digits, number);
}

std::string duration_text(double seconds) {
  if (seconds < 60) {
    return fixed_text(seconds, seconds < 10 ? 2 : 1) + " s";
  }
  return minutes_text(std::chrono::seconds(std::llround(seconds)));
}

std::string tick_text(double seconds) {
  if (seconds < 60) {
    return fixed_text(seconds, seconds == std::floor(seconds) ? 0 : 1) + " s";
  }
  return seconds < 3600 ? fixed_text(seconds / 60, std::fmod(seconds, 60) == 0 ? 0 : 1) + " min"
                        : fixed_text(seconds / 3600, std::fmod(seconds, 3600) == 0 ? 0 : 1) + " h";
}

}  // namespace hvd::launch
