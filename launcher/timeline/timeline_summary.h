// TimelineSummary is what a timeline (HOROVOD_TIMELINE) says in numbers: what took the time, and which rank the others
// waited for. Value type. Times are seconds; of operations that were under way together a moment counts once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launch {

struct TimelineSummary {
  // Share says what operations of one kind, on one tensor, or all together took.
  struct Share {
    std::string name;
    std::string operation;    // of a tensor: "allreduce"
    std::uint64_t count = 0;  // that have ended
    std::uint64_t bytes = 0;  // of all of them, on one rank; 0 where the timeline does not say
    double waited_s =
        0;  // since the first rank asked, until the last one did, or, where nobody says when, until they had agreed
    double worked_s = 0;  // since then, until the end
  };
  struct Rank {
    int rank = 0;
    std::uint64_t last = 0;   // operations that it was the last to ask for
    double waited_for_s = 0;  // since all others had asked for such an operation, until it did
  };
  struct Phase {
    std::string name;  // as in the file: "QUEUE", "NCCL_ALLREDUCE"
    std::uint64_t count = 0;
    double seconds = 0;
  };

  double seconds = 0;   // from the first event until the last
  bool is_cut = false;  // the file ends within an event, as that of a job that was killed
  Share all;
  std::vector<Share> operations;  // by the time that they took
  std::vector<Rank> ranks;        // those of which the timeline speaks, by the time for which they were waited for
  std::vector<Phase> phases;      // by time
  std::vector<Share> tensors;     // by the time that they took
};

}  // namespace hvd::launch
