// StallFinder finds out that ranks of a running job wait for too long: in an operation of libhvd, or, where no rank
// uses libhvd, because none of them prints. Each stall is told once, when it begins.
//
// Pure. Value type.
#pragma once

#include <optional>
#include <string>

#include "launcher/samples/job_picture.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

class StallFinder {
 public:
  // `limit`: how long is too long. Silence counts only if the caller says so: many programs print little.
  StallFinder(Duration limit, bool does_silence_count) : limit_(limit), does_silence_count_(does_silence_count) {}

  // Returns what has stalled, as the beginning of a line: "ranks 0-13 have waited for 60 s in allreduce 'x'"; nullopt
  // if nothing has, or if it was told.
  std::optional<std::string> look(const JobPicture& job);

 private:
  const Duration limit_;
  const bool does_silence_count_;
  std::string told_;  // the operation that was told; silence: "-"; empty: nothing stalls
};

}  // namespace hvd::launch
