#include "launcher/samples/stall_finder.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/cpu_list.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr const char* kSilence = "-";
// A rank that has joined waits for those that have more data, as it should.
constexpr const char* kJoin = "join";

std::string have(const std::vector<std::int32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " + std::to_string(ranks.front()) + " has"
                            : "ranks " + cpu_list_text(ranks) + " have");
}

}  // namespace

std::optional<std::string> StallFinder::look(const JobPicture& job) {
  const auto limit_ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count();
  std::map<std::string, std::vector<std::int32_t>> waiting;  // by operation
  bool uses_libhvd = false;
  bool is_silent = true;
  std::size_t running = 0;
  for (const RankShown& rank : job.ranks) {
    if (rank.state != "running") {
      continue;
    }
    ++running;
    const std::int64_t silent_ms = rank.silent_ms >= 0 ? rank.silent_ms : static_cast<std::int64_t>(job.running_ms);
    is_silent = is_silent && silent_ms >= limit_ms;
    uses_libhvd = uses_libhvd || rank.used.has_runtime;
    const RuntimeSample& runtime = rank.used.runtime;
    if (!runtime.operation.empty() && runtime.operation != kJoin &&
        runtime.for_ms >= static_cast<std::uint64_t>(limit_ms)) {
      waiting[runtime.operation + " '" + runtime.tensor + "'"].push_back(rank.rank);
    }
  }
  const auto most = std::max_element(waiting.begin(), waiting.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string what;
  std::string text;
  if (most != waiting.end()) {
    what = most->first;
    text = have(most->second) + " waited for " + duration_text(limit_) + " in " + what;
  } else if (does_silence_count_ && running > 0 && is_silent && !uses_libhvd) {
    what = kSilence;
    text = "no rank has printed for " + duration_text(limit_);
  }
  if (what == told_) {
    return std::nullopt;
  }
  told_ = what;
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace hvd::launch
