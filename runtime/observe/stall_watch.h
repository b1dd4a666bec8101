// StallWatch finds tensors for which some ranks have asked and others have not, for too long. That is the usual failure
// of a program whose ranks take different branches. The coordinator passes it what is incomplete now and then, and it
// returns the text of the warning.
//
// Time in which this process did not run (stopped with Ctrl-Z, or with its whole machine) does not count, because the
// missing ranks are not the cause of that delay.
//
// Pure: the caller gives the time and the list. Thread: engine only, on the coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"

namespace hvd {

// Incomplete is a tensor (or a group by its first) for which not all ranks have asked.
struct Incomplete {
  std::uint64_t serial = 0;  // unique among a process set's tensors, whatever their names
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
    std::string warning;             // empty: nothing to report
    std::optional<std::string> end;  // why the job must end
  };
  // Takes all that is incomplete now. A tensor's age counts from the first look that saw it. It is reported when it is
  // older than `warn_after`, and again after the same time.
  Finding look(TimePoint clock_now, std::span<const Incomplete> incomplete);
  // Reports that this process runs, between two looks that are far apart because there is much to do.
  void note_running(TimePoint now) { time_.look(now); }

  [[nodiscard]] bool is_on() const {
    return options_.warn_after > Duration::zero() || options_.end_after > Duration::zero();
  }
  // The time between two looks, which is short compared with what it should find.
  [[nodiscard]] Duration period() const;

 private:
  // On a busy machine, a look may be this late although the process was not stopped.
  static constexpr Duration kSlack = std::chrono::seconds(1);

  struct Seen {
    TimePoint first;
    TimePoint told;
  };

  const StallOptions options_;
  WatchedTime time_;
  std::unordered_map<std::string, Seen> seen_;  // by set and serial
};

// Formats ranks as "1, 3-5".
std::string ranks_text(std::span<const int> ranks);

}  // namespace hvd
