#include "launcher/logs/failure_signs.h"

#include <algorithm>
#include <array>

namespace hvd::launch {
namespace {

// Python prints this line. It may be inside a box that a library draws, or behind a progress bar, so it is searched for
// anywhere in a line.
constexpr std::string_view kTraceback = "Traceback (most recent call last)";
// After these lines comes a traceback of the same failure, or of a failure while the program was ending.
constexpr std::array<std::string_view, 4> kContinued = {"During handling of the above exception",
                                                        "The above exception was the direct cause",
                                                        "Exception ignored ", "Error in atexit._run_exitfuncs"};
// Programs in other languages begin their last messages like this.
constexpr std::array<std::string_view, 9> kAborts = {"terminate called ",
                                                     "Fatal Python error:",
                                                     "Segmentation fault",
                                                     "double free or corruption",
                                                     "free(): ",
                                                     "malloc(): ",
                                                     "corrupted ",
                                                     "*** stack smashing detected",
                                                     "panic: "};
// Gloo, NCCL, torch's store and sockets print these when the other end has gone.
constexpr std::array<std::string_view, 8> kLosses = {"Connection closed by peer",
                                                     "Connection reset by peer",
                                                     "Broken pipe",
                                                     "remote process exited",
                                                     "ncclRemoteError",
                                                     "Connection was likely closed",
                                                     "failed to recv, got 0 bytes",
                                                     "Horovod has been shut down by rank"};
// torch.distributed begins each line of a traceback with "[rank3]: ".
constexpr std::string_view kTorchPrefix = "[rank";
constexpr std::string_view kTorchPrefixEnd = "]: ";

std::string_view without_torch_prefix(std::string_view line) {
  const auto end = line.starts_with(kTorchPrefix) ? line.find(kTorchPrefixEnd) : std::string_view::npos;
  return end == std::string_view::npos ? line : line.substr(end + kTorchPrefixEnd.size());
}

// A traceback is a few dozen lines; lines after this many belong to something else.
constexpr int kLooked = 200;

template <std::size_t N>
bool begins_with_any(std::string_view line, const std::array<std::string_view, N>& words) {
  return std::any_of(words.begin(), words.end(), [line](std::string_view word) { return line.starts_with(word); });
}

}  // namespace

FailureSigns::Sign FailureSigns::on_line(std::string_view line) {
  line = without_torch_prefix(line.substr(0, line.find_last_not_of("\r\n") + 1));
  if (line.find(kTraceback) != std::string_view::npos || begins_with_any(line, kAborts)) {
    const bool is_new = !(is_continued_ && lines_left_ > 0);
    is_continued_ = false;
    lines_left_ = kLooked;
    return is_new ? Sign::kBegins : Sign::kNone;
  }
  if (line.empty() || lines_left_ == 0) {
    return Sign::kNone;
  }
  --lines_left_;
  is_continued_ = begins_with_any(line, kContinued);
  const bool is_loss = std::any_of(kLosses.begin(), kLosses.end(),
                                   [line](std::string_view word) { return line.find(word) != std::string_view::npos; });
  return is_loss ? Sign::kLost : Sign::kNone;
}

}  // namespace hvd::launch
