#include "launcher/wire/sample_messages.h"

#include <algorithm>

namespace hvd::launch {

std::string WatchMessage::encode() const {
  return encoded(*this);
}

Result<WatchMessage> WatchMessage::decode(std::string_view body) {
  return decoded<WatchMessage>(body, "Watch", [](const WatchMessage&) { return true; });
}

std::string SampleMessage::encode() const {
  return encoded(*this);
}

Result<SampleMessage> SampleMessage::decode(std::string_view body) {
  return decoded<SampleMessage>(body, "Sample", [](const SampleMessage& m) {
    return std::all_of(m.ranks.begin(), m.ranks.end(), [](const RankSample& rank) { return rank.rank >= 0; });
  });
}

}  // namespace hvd::launch
