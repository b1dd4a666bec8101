// JobSamples makes of what the agents sample, and of what the ranks print, the picture of a running job: rates between
// two samples, and how long each rank has been silent.
//
// Pure: the caller gives the time. Thread: loop only.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "launcher/samples/job_picture.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

class JobSamples {
 public:
  void take(int node, const SampleMessage& sample);
  void note_output(int rank, std::string_view bytes, TimePoint now);
  void note_back(int node) { ++nodes_[node].reconnects; }
  // Adds what is known to a view that has the job's nodes, and its ranks with their states.
  void fill(JobPicture& view, TimePoint now) const;

 private:
  struct RankLast {
    RankSample sample;
    std::uint64_t at_ms = 0;
    double cores = 0;
    double bytes_per_s = 0;
    double operations_per_s = 0;
  };
  struct Printed {
    std::uint64_t lines = 0;
    std::uint64_t bytes = 0;
    TimePoint last{};
  };
  struct NodeLast {
    std::optional<SampleMessage> sample;
    double cores = 0;
    int reconnects = 0;
  };

  void take_rank(const RankSample& sample, std::uint64_t at_ms);
  void take_last(const RankSample& sample);

  std::map<int, RankLast> ranks_;
  std::map<int, Printed> printed_;
  std::map<int, NodeLast> nodes_;
};

}  // namespace hvd::launch
