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
    std::string operation;  // of a tensor: "allreduce"
    // Operations that have ended count. Those of a process set without the rank that writes count once all its ranks
    // have asked, since the file has no end of them.
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;  // of all of them, on one rank; 0 where the timeline does not say
    // Since the first rank asked, until the last one did, or, where nobody says when, until they had agreed. All
    // together do not wait in `join`: a rank that has joined waits for nobody's tensor.
    double waited_s = 0;
    double worked_s = 0;  // since then, until the end
  };
  struct Rank {
    int rank = 0;
    std::uint64_t last = 0;   // operations that it was the last to ask for
    double waited_for_s = 0;  // since all others had asked for such an operation, until it did
    // Since the first rank had asked for an operation, until this one did, while it waited for no other one itself.
    double behind_s = 0;
  };
  struct Phase {
    std::string name;  // as in the file: "QUEUE", "NCCL_ALLREDUCE"
    std::uint64_t count = 0;
    double seconds = 0;
  };
  // An operation that has begun, and has no end in the file.
  struct Unfinished {
    std::string name;  // of the tensor
    std::string operation;
    double seconds = 0;        // since it began, as far as the file goes
    bool is_waiting = false;   // not all ranks had asked for it
    std::vector<int> missing;  // those that had not, as far as the timeline knows them; ascending
  };

  double seconds = 0;         // from the first event until the last
  bool is_cut = false;        // the file ends within an event, as that of a job that was killed
  std::uint64_t dropped = 0;  // records that its writer had to leave out
  Share all;
  std::vector<Share> operations;       // by the time that they took
  std::vector<Rank> ranks;             // those of which the timeline speaks, by the time for which they were behind
  std::vector<Phase> phases;           // by time
  std::vector<Share> tensors;          // by the time that they took
  std::vector<Unfinished> unfinished;  // by the time since they began
};

}  // namespace hvd::launch
