// StallWatch: which tensors some ranks have asked for and others not, for too long: the usual end of a program whose
// ranks take different branches. It is told now and then what is incomplete, and says what to tell the user.
//
// Time in which this process did not run (stopped with Ctrl-Z, or with its whole machine) does not count: nobody was
// late in it that the others were not.
//
// Pure: the clock and the list are the caller's. Thread: engine only, on the coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd {

// A tensor (or a group by its first), for which not all ranks have asked.
struct Incomplete {
  std::uint64_t serial = 0;  // no two of a process set's tensors have the same, whatever their names
  int process_set = 0;
  std::string what;          // "ALLREDUCE 'x'"
  std::vector<int> missing;  // ranks of the job, ascending
};

struct StallOptions {
  Duration warn_after = std::chrono::seconds(60);  // 0: never
  Duration end_after{};                            // 0: never
};

class StallWatch {
 public:
  explicit StallWatch(StallOptions options) : options_(options), time_(period() + kSlack) {}

  struct Finding {
    std::string warning;             // empty: nothing to tell
    std::optional<std::string> end;  // why the job is to end
  };
  // All that is incomplete now. A tensor's age counts from the first look that saw it; it is told when it is older than
  // `warn_after`, and again after as long.
  Finding look(TimePoint clock_now, std::span<const Incomplete> incomplete);
  // Between two looks that are far apart, since there is much to do: that this process runs.
  void note_running(TimePoint now) { time_.look(now); }

  [[nodiscard]] bool is_on() const {
    return options_.warn_after > Duration::zero() || options_.end_after > Duration::zero();
  }
  // Between two looks: short against what it is to find.
  [[nodiscard]] Duration period() const;

 private:
  // A look may be so late on a busy machine without that the process was stopped.
  static constexpr Duration kSlack = std::chrono::seconds(1);

  struct Seen {
    TimePoint first;
    TimePoint told;
  };

  const StallOptions options_;
  WatchedTime time_;
  std::unordered_map<std::string, Seen> seen_;  // by set and serial
};

// "1, 3-5"
std::string ranks_text(std::span<const int> ranks);

}  // namespace hvd
