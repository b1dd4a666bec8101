#include "launcher/job/metrics_place.h"

#include <string_view>

#include "runtime/base/text.h"

namespace hvd::launch {

Result<MetricsPlace> parse_metrics_place(const std::string& text, const std::string& token) {
  constexpr std::string_view kUnix = "unix:";
  MetricsPlace place;
  place.token = token;
  if (text.starts_with(kUnix) && text.size() > kUnix.size()) {
    place.socket = text.substr(kUnix.size());
    return place;
  }
  const std::size_t colon = text.rfind(':');
  const auto port = colon == std::string::npos || colon == 0
                        ? std::nullopt
                        : parse_number<std::uint16_t>(std::string_view(text).substr(colon + 1), 1);
  if (!port) {
    return Error(Code::kInvalid, "'" + text + "': expected unix:PATH or ADDRESS:PORT, as in 127.0.0.1:9400");
  }
  place.port = *port;
  place.ip = text.substr(0, colon);
  if (place.ip.front() == '[' && place.ip.back() == ']') {
    place.ip = place.ip.substr(1, place.ip.size() - 2);
  }
  if (!place.ip.starts_with("127.") && place.ip != "::1" && token.empty()) {
    return Error(Code::kInvalid, "'" + text +
                                     "': others can reach that address; give --metrics-token FILE too, or "
                                     "listen at 127.0.0.1");
  }
  return place;
}

}  // namespace hvd::launch
