#include "launcher/wire/sample_messages.h"

#include <algorithm>

namespace hvd::launch {
namespace {

bool is_sample(const SampleMessage& m) {
  return std::all_of(m.ranks.begin(), m.ranks.end(), [](const RankSample& rank) { return rank.rank >= 0; });
}

}  // namespace

HVD_MESSAGE(WatchMessage, "Watch")
HVD_MESSAGE(SampleMessage, "Sample", is_sample)

}  // namespace hvd::launch
